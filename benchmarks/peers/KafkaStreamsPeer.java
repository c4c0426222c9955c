import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The jobs of the benchmark on Kafka Streams, exactly once, with its defaults for nearly all else.
 *
 * <p>Arguments: job, bootstrap servers, application id, source, sink, state folder, threads. The
 * jobs are forward, count (without caching), cached-count, processor, and those of dsl_jobs.py,
 * all without caching, the queries of NexmarkQueries.java, and the use cases of TheodoliteJobs.java.
 * It ends on SIGTERM, and with exit code 1 if Kafka Streams gives up.
 */
public final class KafkaStreamsPeer {
  private static final String COUNTS = "Counts";
  private static final String TABLE = "bench_table";
  private static final String RIGHT = "bench_right";
  private static final Duration ONE_WINDOW = Duration.ofDays(10 * 365);
  private static final Duration GRACE = Duration.ofMillis(100_000_000);
  private static final long FIRST_MS = 1_000_000;
  private static final Duration HOP = Duration.ofSeconds(20);
  private static final Duration SLIDING = Duration.ofSeconds(50);
  private static final Duration GAP = Duration.ofSeconds(15);
  private static final Duration CLOSING = Duration.ofSeconds(50);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Consumed<String, String> STRINGS =
      Consumed.with(Serdes.String(), Serdes.String());

  public static void main(String[] args) throws InterruptedException {
    String job = args[0];
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[2]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args[5]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[6]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    // By default, a window that closes within a second after another one waits for a later record.
    settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
    KafkaStreams streams = new KafkaStreams(topology(job, args[3], args[4]), settings);
    CountDownLatch failed = new CountDownLatch(1);
    streams.setStateListener(
        (state, former) -> {
          if (state == KafkaStreams.State.ERROR) {
            failed.countDown();
          }
        });
    // Otherwise the next start waits until the broker has missed this one for a session timeout.
    CloseOptions leaving =
        CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
    streams.start();
    failed.await();
    System.exit(1);
  }

  private static Topology topology(String job, String source, String sink) {
    return switch (job) {
      case "forward" -> forward(source, sink);
      case "count" -> count(source, sink, counts().withCachingDisabled());
      case "cached-count" -> count(source, sink, counts().withCachingEnabled());
      case "processor" -> processor(source, sink);
      case "filter-map" -> filterMap(source, sink);
      case "windowed-count" -> windowedCount(source, sink);
      case "stream-table" -> streamTable(source, sink);
      case "stream-stream" -> streamStream(source, sink);
      case "foreign-key" -> foreignKey(source, sink);
      case "minute-counts" -> minuteCounts(source, sink);
      case "hopping" -> hopping(source, sink);
      case "sliding" -> sliding(source, sink);
      case "session" -> session(source, sink);
      case "suppressed" -> suppressed(source, sink);
      case "cogroup" -> cogroup(source, sink);
      case "table-table" -> tableTable(source, sink);
      case "table-sum" -> tableSum(source, sink);
      case "uc1", "uc2", "uc3", "uc4" -> TheodoliteJobs.topology(job, source, sink);
      default -> NexmarkQueries.topology(job, source, sink);
    };
  }

  private static Topology forward(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(source, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .to(sink, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    return builder.build();
  }

  private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts() {
    return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(COUNTS)
        .withKeySerde(Serdes.String())
        .withValueSerde(Serdes.Long());
  }

  private static Topology count(
      String source, String sink, Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store) {
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(source, Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
        .count(store)
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology processor(String source, String sink) {
    return new Topology()
        .addSource("Source", new StringDeserializer(), new StringDeserializer(), source)
        .addProcessor("Stage", Counting::new, "Source")
        .addStateStore(
            Stores.keyValueStoreBuilder(
                    Stores.persistentKeyValueStore(COUNTS), Serdes.String(), Serdes.Long())
                .withCachingDisabled(),
            "Stage")
        .addSink("Sink", sink, new StringSerializer(), new StringSerializer(), "Stage");
  }

  private static Topology filterMap(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(source, STRINGS)
        .filter((key, value) -> value.endsWith("1"))
        .mapValues(value -> "0" + value)
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology windowedCount(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(source, STRINGS)
        .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
        .windowedBy(TimeWindows.ofSizeWithNoGrace(ONE_WINDOW))
        .count(
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(COUNTS)
                .withCachingDisabled()
                .withRetention(ONE_WINDOW))
        .toStream()
        .map((windowed, count) -> KeyValue.pair(windowed.key(), Long.toString(count)))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static KTable<String, String> table(StreamsBuilder builder, String topic, String store) {
    return builder.table(
        topic,
        STRINGS,
        Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(store).withCachingDisabled());
  }

  private static Topology streamTable(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    KTable<String, String> table = table(builder, TABLE, "Table");
    builder
        .stream(source, STRINGS)
        .leftJoin(table, (left, right) -> left)
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology streamStream(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    Consumed<String, String> numbered =
        STRINGS.withTimestampExtractor(
            (record, partitionTime) -> Long.parseLong((String) record.value()));
    builder
        .stream(source, numbered)
        .join(
            builder.stream(RIGHT, numbered),
            (left, right) -> left,
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, GRACE),
            StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology foreignKey(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    KTable<String, String> left = table(builder, source, "Left");
    KTable<String, String> right = table(builder, TABLE, "Right");
    left.<String, String, String>join(
            right,
            value -> value.substring(value.length() - 2),
            (value, other) -> value,
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("Joined")
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.String())
                .withCachingDisabled())
        .toStream()
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static KGroupedStream<String, String> timed(StreamsBuilder builder, String source) {
    return builder
        .stream(
            source,
            STRINGS.withTimestampExtractor(
                (record, partitionTime) -> FIRST_MS + Long.parseLong((String) record.value())))
        .groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
  }

  private static <S extends StateStore> Materialized<String, String, S> latest() {
    return Materialized.<String, String, S>as("Latest")
        .withKeySerde(Serdes.String())
        .withValueSerde(Serdes.String())
        .withCachingDisabled();
  }

  private static KTable<Windowed<String>, String> latest(
      TimeWindowedKStream<String, String> windowed) {
    return windowed.reduce(
        (old, number) -> number, KafkaStreamsPeer.<WindowStore<Bytes, byte[]>>latest());
  }

  private static void passOn(KStream<Windowed<String>, String> results, String sink) {
    results
        .map((windowed, number) -> KeyValue.pair(windowed.key(), number))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
  }

  private static Topology hopping(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    TimeWindows hops = TimeWindows.ofSizeWithNoGrace(HOP.multipliedBy(12)).advanceBy(HOP);
    passOn(
        latest(timed(builder, source).windowedBy(hops))
            .toStream()
            .filter(
                (windowed, number) ->
                    windowed.window().start() + HOP.toMillis() > FIRST_MS + Long.parseLong(number)),
        sink);
    return builder.build();
  }

  private static Topology sliding(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    SlidingWindows spans = SlidingWindows.ofTimeDifferenceWithNoGrace(SLIDING);
    passOn(
        latest(timed(builder, source).windowedBy(spans))
            .toStream()
            .filter(
                (windowed, number) ->
                    windowed.window().end() == FIRST_MS + Long.parseLong(number)),
        sink);
    return builder.build();
  }

  private static Topology session(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    passOn(
        timed(builder, source)
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(GAP))
            .reduce(
                (old, number) -> number, KafkaStreamsPeer.<SessionStore<Bytes, byte[]>>latest())
            .toStream()
            .filter((windowed, number) -> number != null),
        sink);
    return builder.build();
  }

  private static Topology suppressed(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    passOn(
        latest(timed(builder, source).windowedBy(TimeWindows.ofSizeWithNoGrace(CLOSING)))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream(),
        sink);
    return builder.build();
  }

  private static Topology cogroup(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    Grouped<String, String> strings = Grouped.with(Serdes.String(), Serdes.String());
    Aggregator<String, String, Long> oneMore = (key, number, count) -> count + 1;
    KGroupedStream<String, String> right = builder.stream(RIGHT, STRINGS).groupByKey(strings);
    builder.stream(source, STRINGS).groupByKey(strings).cogroup(oneMore).cogroup(right, oneMore)
        .aggregate(() -> 0L, counts().withCachingDisabled())
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology tableTable(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    KTable<String, String> left = table(builder, source, "Left");
    KTable<String, String> right = table(builder, TABLE, "Right");
    left.join(right, (number, row) -> number)
        .toStream()
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology tableSum(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    table(builder, source, "Rows")
        .groupBy(KeyValue::pair, Grouped.with(Serdes.String(), Serdes.String()))
        .aggregate(
            () -> 0L,
            (key, number, total) -> total + Long.parseLong(number),
            (key, number, total) -> total - Long.parseLong(number),
            counts().withCachingDisabled())
        .toStream()
        .mapValues(total -> Long.toString(total))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static Topology minuteCounts(String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(source, STRINGS)
        .groupBy((user, reading) -> place(reading), Grouped.with(Serdes.String(), Serdes.String()))
        .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
        .emitStrategy(EmitStrategy.onWindowClose())
        .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(COUNTS))
        .toStream()
        .map(
            (windowed, count) ->
                KeyValue.pair(
                    windowed.key(),
                    String.format(
                        "{\"minute\":%d,\"records\":%d}", windowed.window().start(), count)))
        .to(sink, Produced.with(Serdes.String(), Serdes.String()));
    return builder.build();
  }

  private static String place(String reading) {
    try {
      return JSON.readTree(reading).get("place").asText();
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
  }

  /** Counts the records of each key, one by one. */
  private static final class Counting implements Processor<String, String, String, String> {
    private ProcessorContext<String, String> context;
    private KeyValueStore<String, Long> counts;

    @Override
    public void init(ProcessorContext<String, String> context) {
      this.context = context;
      counts = context.getStateStore(COUNTS);
    }

    @Override
    public void process(Record<String, String> record) {
      Long known = counts.get(record.key());
      long count = known == null ? 1 : known + 1;
      counts.put(record.key(), count);
      context.forward(record.withValue(Long.toString(count)));
    }
  }
}
