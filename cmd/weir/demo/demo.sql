-- Page views, counted per page. Any SQL file is deployed like this one: weir deploy FILE
SET checkpoint.interval = '1 s';

CREATE STREAM page_views (page TEXT NOT NULL, country TEXT NOT NULL, ms BIGINT NOT NULL) PARTITION BY (page);

CREATE MATERIALIZED VIEW by_page AS
SELECT page, count(*) AS views, avg(ms) AS avg_ms
FROM page_views
GROUP BY page;

CREATE MATERIALIZED VIEW by_country AS
SELECT country, count(*) AS views
FROM page_views
GROUP BY country;
