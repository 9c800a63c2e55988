SET checkpoint.interval = '50 ms';

-- sender and n number the rows, so that the log shows whether one is missing or there twice.
CREATE STREAM orders (
  sender  TEXT NOT NULL,
  n       BIGINT NOT NULL,
  country TEXT,
  item    BIGINT,
  amount  BIGINT,
  placed  TIMESTAMPTZ
) PARTITION BY (country, item);

-- A composite key of a TEXT and a TIMESTAMPTZ, either of which can be NULL. WHERE leaves rows out.
CREATE MATERIALIZED VIEW by_day AS
SELECT country, date_trunc('day', placed) AS day, count(*) AS orders, sum(amount) AS total, min(amount) AS least, max(placed) AS latest
FROM orders
WHERE amount IS NULL OR amount <> 0
GROUP BY country, day;

-- A key of a BIGINT and a TEXT. The balance goes up and down, through zero.
CREATE MATERIALIZED VIEW by_item AS
SELECT item, country, count(*) AS orders, sum(amount) AS balance
FROM orders
GROUP BY item, country;

-- A view over a view: an item leaves it when its balance is no longer negative, and a country with its last item.
CREATE MATERIALIZED VIEW in_debt AS
SELECT country, count(*) AS items, sum(balance) AS debt
FROM by_item
WHERE balance < 0
GROUP BY country;
