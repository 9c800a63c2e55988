SET checkpoint.interval = '50 ms';

-- sender and n number the rows, so that the log shows whether one is missing or there twice.
CREATE STREAM orders (
  sender  TEXT NOT NULL,
  n       BIGINT NOT NULL,
  country TEXT,
  item    BIGINT,
  amount  BIGINT,
  placed  TIMESTAMPTZ
) PARTITION BY (country, item) WITH (max_bytes = '1 MiB');

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

-- A view over a view, with its key: a row leaves it when the balance is no longer negative.
CREATE MATERIALIZED VIEW in_debt AS
SELECT item, country, balance
FROM by_item
WHERE balance < 0;

-- A view over that: a group goes with its last row.
CREATE MATERIALIZED VIEW debts AS
SELECT item, count(*) AS countries, sum(balance) AS debt
FROM in_debt
WHERE balance < -100
GROUP BY item;
