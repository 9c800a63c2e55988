SET checkpoint.interval = '50 ms';

-- Rows that no pipeline needs any more go soon, and with them the segments of the logs.
CREATE STREAM lines (line TEXT) WITH (max_bytes = '2 MiB');

CREATE MATERIALIZED VIEW counts AS
SELECT word, count(*) AS n
FROM lines, UNNEST(regexp_split_to_array(lower(line), '[^a-z0-9]+')) AS t(word)
WHERE word <> ''
GROUP BY word;
