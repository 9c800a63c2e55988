SET checkpoint.interval = '200 ms';

-- More keys than the server's memory has room for.
CREATE STREAM ballast (k BIGINT NOT NULL) PARTITION BY (k) WITH (max_bytes = '64 MiB');

CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM ballast GROUP BY k;
