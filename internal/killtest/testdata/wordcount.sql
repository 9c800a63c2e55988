SET checkpoint.interval = '50 ms';

CREATE STREAM lines (line TEXT);

CREATE MATERIALIZED VIEW counts AS
SELECT word, count(*) AS n
FROM lines, UNNEST(regexp_split_to_array(lower(line), '[^a-z0-9]+')) AS t(word)
WHERE word <> ''
GROUP BY word;
