-- The queries in the dialect of Flink. What follows the name of a query are the columns of the key
-- of its results, which are a table then; the results of the others are only added to.
--
-- Two are missing: q6, as OVER does not take updates (FLINK-19059), and q13, as Flink SQL cannot look
-- up rows of a file, and a regular join would keep all bids. DOUBLE keeps the fraction of means.

-- q0
SELECT auction, bidder, price, `dateTime`, extra FROM bid

-- q1
SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid

-- q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0

-- q3 id
SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')

-- q4 id
SELECT Q.category AS id, AVG(CAST(Q.final AS DOUBLE)) AS final
FROM (
  SELECT MAX(B.price) AS final, A.category
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
  GROUP BY A.id, A.category
) Q
GROUP BY Q.category

-- q5
SELECT UNIX_TIMESTAMP(DATE_FORMAT(AuctionBids.starttime, 'yyyy-MM-dd HH:mm:ss')) * 1000 AS `start`,
  AuctionBids.auction, AuctionBids.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS AuctionBids
JOIN (
  SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
  FROM (
    SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) AS CountBids
  GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
  AND AuctionBids.num >= MaxBids.maxn

-- q7
SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra
FROM (
  SELECT *, ROW_NUMBER() OVER (
    PARTITION BY window_start, window_end ORDER BY price DESC, `dateTime`) AS place
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
) B
WHERE B.place <= 1

-- q8
SELECT P.id, P.name,
  UNIX_TIMESTAMP(DATE_FORMAT(P.starttime, 'yyyy-MM-dd HH:mm:ss')) * 1000 AS stime
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) P
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime

-- q9 id
SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
  bidder, price, bid_dateTime, bid_extra
FROM (
  SELECT A.id, A.itemName, A.description, A.initialBid, A.reserve, A.`dateTime`, A.expires, A.seller,
    A.category, A.extra, B.bidder, B.price, B.`dateTime` AS bid_dateTime, B.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC) AS place
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
)
WHERE place <= 1

-- q11
SELECT bidder, COUNT(*) AS bid_count,
  UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')) * 1000
    + EXTRACT(MILLISECOND FROM window_start) AS starttime,
  UNIX_TIMESTAMP(DATE_FORMAT(window_end, 'yyyy-MM-dd HH:mm:ss')) * 1000
    + EXTRACT(MILLISECOND FROM window_end) AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- q12
SELECT bidder, COUNT(*) AS bid_count,
  UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')) * 1000 AS starttime,
  UNIX_TIMESTAMP(DATE_FORMAT(window_end, 'yyyy-MM-dd HH:mm:ss')) * 1000 AS endtime
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(read_at), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- q14
SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra,
  CASE
    WHEN HOUR(CAST(`at` AS TIMESTAMP(3))) BETWEEN 8 AND 18 THEN 'dayTime'
    WHEN HOUR(CAST(`at` AS TIMESTAMP(3))) <= 6 OR HOUR(CAST(`at` AS TIMESTAMP(3))) >= 20
      THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15 day
SELECT DATE_FORMAT(`at`, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY DATE_FORMAT(`at`, 'yyyy-MM-dd')

-- q16 channel day
SELECT channel, DATE_FORMAT(`at`, 'yyyy-MM-dd') AS `day`,
  MAX(DATE_FORMAT(`at`, 'HH:mm')) AS `minute`,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY channel, DATE_FORMAT(`at`, 'yyyy-MM-dd')

-- q17 auction day
SELECT auction, DATE_FORMAT(`at`, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(CAST(price AS DOUBLE)) AS avg_price,
  SUM(price) AS sum_price
FROM bid GROUP BY auction, DATE_FORMAT(`at`, 'yyyy-MM-dd')

-- q18 bidder auction
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `at` DESC) AS place FROM bid)
WHERE place <= 1

-- q19 auction rank_number
SELECT auction, bidder, price, channel, url, `dateTime`, extra, rank_number
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
WHERE rank_number <= 10

-- q20
SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.`dateTime` AS bid_dateTime,
  B.extra AS bid_extra, A.itemName, A.description, A.initialBid, A.reserve,
  A.`dateTime` AS auction_dateTime, A.expires, A.seller, A.category, A.extra AS auction_extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10

-- q21
SELECT * FROM (
  SELECT auction, bidder, price, channel,
    CASE LOWER(channel)
      WHEN 'apple' THEN '0'
      WHEN 'google' THEN '1'
      WHEN 'facebook' THEN '2'
      WHEN 'baidu' THEN '3'
      ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
  FROM bid)
WHERE channel_id IS NOT NULL

-- q22
SELECT auction, bidder, price, channel,
  SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid

-- q23
SELECT B.bidder, B.price, B.channel, B.url, B.extra AS bid_extra,
  P.id AS person_id, P.name, P.emailAddress, P.creditCard, P.city, P.state, P.extra AS person_extra,
  A.itemName, A.description, A.initialBid, A.reserve, A.`dateTime` AS auction_dateTime, A.expires,
  A.seller, A.category, A.extra AS auction_extra
FROM bid AS B JOIN person AS P ON P.id = B.bidder JOIN auction AS A ON A.seller = B.bidder
