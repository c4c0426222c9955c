-- The right results of each query, in DuckDB: the rows of the final result, in any order. The tables
-- are those of the generator; `arrival` is the place of an event among all. Windows that the closing
-- events leave open have no result.

-- q0
SELECT auction, bidder, price, dateTime, extra FROM bid

-- q1
SELECT auction, bidder, CAST(0.908 * price AS DOUBLE) AS price, dateTime, extra FROM bid

-- q2
SELECT auction, price FROM bid WHERE auction % 123 = 0

-- q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')

-- q4
SELECT category AS id, sum(final)::DOUBLE / count(*) AS final
FROM (
  SELECT max(b.price) AS final, a.category
  FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.category)
GROUP BY category

-- q5
WITH counts AS (
  SELECT start, auction, count(*) AS num
  FROM (
    SELECT unnest([dateTime // 2000 * 2000 - 2000 * i FOR i IN range(5)]) AS start, auction
    FROM bid)
  WHERE start + 10000 <= (SELECT max(dateTime) FROM bid)
  GROUP BY start, auction)
SELECT start, auction, num FROM counts
QUALIFY rank() OVER (PARTITION BY start ORDER BY num DESC) = 1

-- q6
WITH sale AS (
  SELECT a.seller, b.dateTime, a.id, b.price
  FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.arrival) = 1),
latest AS (
  SELECT * FROM sale
  QUALIFY row_number() OVER (PARTITION BY seller ORDER BY dateTime DESC, id DESC) <= 11)
SELECT seller, sum(price)::DOUBLE / count(*) AS avg_price FROM latest GROUP BY seller

-- q7
SELECT auction, bidder, price, dateTime, extra FROM bid
WHERE dateTime // 10000 * 10000 + 10000 <= (SELECT max(dateTime) FROM bid)
QUALIFY row_number() OVER (PARTITION BY dateTime // 10000 ORDER BY price DESC, dateTime, arrival) = 1

-- q8
SELECT DISTINCT p.id, p.name, p.dateTime // 10000 * 10000 AS stime
FROM person p JOIN auction a ON p.id = a.seller AND p.dateTime // 10000 = a.dateTime // 10000

-- q9
SELECT a.* EXCLUDE (arrival), b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.arrival) = 1

-- q11
WITH marked AS (
  SELECT bidder, dateTime,
    CASE WHEN dateTime - lag(dateTime) OVER each <= 10000 THEN 0 ELSE 1 END AS is_first
  FROM bid WINDOW each AS (PARTITION BY bidder ORDER BY dateTime)),
numbered AS (
  SELECT bidder, dateTime,
    sum(is_first) OVER (PARTITION BY bidder ORDER BY dateTime) AS number
  FROM marked)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + 10000 AS endtime
FROM numbered GROUP BY bidder, number
HAVING max(dateTime) + 10000 <= (SELECT max(dateTime) FROM bid)

-- q12
SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder

-- q13
SELECT auction, bidder, price, dateTime, CAST(auction % 10000 AS VARCHAR) AS side_value FROM bid

-- q14
SELECT auction, bidder, CAST(0.908 * price AS DOUBLE) AS price, dateTime, extra,
  CASE
    WHEN hour(make_timestamp_ms(dateTime)) BETWEEN 8 AND 18 THEN 'dayTime'
    WHEN hour(make_timestamp_ms(dateTime)) IN (7, 19) THEN 'otherTime'
    ELSE 'nightTime'
  END AS bidTimeType,
  length(regexp_replace(extra, '[^c]', '', 'g')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15
SELECT strftime(make_timestamp_ms(dateTime), '%Y-%m-%d') AS day,
  count(*) AS total_bids,
  count(*) FILTER (price < 10000) AS rank1_bids,
  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bid GROUP BY day

-- q16
SELECT channel, strftime(make_timestamp_ms(dateTime), '%Y-%m-%d') AS day,
  max(strftime(make_timestamp_ms(dateTime), '%H:%M')) AS minute,
  count(*) AS total_bids,
  count(*) FILTER (price < 10000) AS rank1_bids,
  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bid GROUP BY channel, day

-- q17
SELECT auction, strftime(make_timestamp_ms(dateTime), '%Y-%m-%d') AS day,
  count(*) AS total_bids,
  count(*) FILTER (price < 10000) AS rank1_bids,
  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (price >= 1000000) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price,
  sum(price)::DOUBLE / count(*) AS avg_price, sum(price)::BIGINT AS sum_price
FROM bid GROUP BY auction, day

-- q18
SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, arrival DESC) = 1

-- q19
SELECT * EXCLUDE (arrival),
  row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, arrival) AS rank_number
FROM bid QUALIFY rank_number <= 10

-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime,
  b.extra AS bid_extra, a.itemName, a.description, a.initialBid, a.reserve,
  a.dateTime AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10

-- q21
SELECT * FROM (
  SELECT auction, bidder, price, channel,
    CASE lower(channel)
      WHEN 'apple' THEN '0'
      WHEN 'google' THEN '1'
      WHEN 'facebook' THEN '2'
      WHEN 'baidu' THEN '3'
      ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
    END AS channel_id
  FROM bid)
WHERE channel_id IS NOT NULL

-- q22
SELECT auction, bidder, price, channel,
  split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid

-- q23
SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra,
  p.id AS person_id, p.name, p.emailAddress, p.creditCard, p.city, p.state, p.extra AS person_extra,
  a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires,
  a.seller, a.category, a.extra AS auction_extra
FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
