package org.apache.kafka.streams.kstream.internals;

import java.lang.reflect.Field;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.internals.ProcessorNode;
import org.apache.kafka.streams.processor.internals.ProcessorTopology;

/**
 * Lets joins of streams look for records without a partner with each record that moves the time on.
 *
 * <p>Kafka Streams looks when the earliest time that it saw the last time is older than the window
 * of the side of the record in hand. So it sends records late if the sides have different windows,
 * or if others wait with them (KAFKA-15417). With this, it sends them in time.
 */
public final class ExactLooks {
  private ExactLooks() {}

  private static final class Tracker extends KStreamImplJoin.TimeTracker {
    @Override
    public void advanceStreamTime(long recordTimestamp) {
      super.advanceStreamTime(recordTimestamp);
      minTime = Long.MIN_VALUE;
    }
  }

  /** Replaces what the joins of a topology know about the earliest time. */
  public static void install(TopologyTestDriver driver) {
    Map<Object, Tracker> trackers = new IdentityHashMap<>();
    try {
      Object task = field(TopologyTestDriver.class, "task").get(driver);
      if (task == null) {
        return;
      }
      Class<?> base = task.getClass().getSuperclass();
      ProcessorTopology topology = (ProcessorTopology) field(base, "topology").get(task);
      for (ProcessorNode<?, ?, ?, ?> node : topology.processors()) {
        Object processor = field(ProcessorNode.class, "processor").get(node);
        if (processor instanceof KStreamKStreamJoin<?, ?, ?, ?, ?, ?>.KStreamKStreamJoinProcessor) {
          Class<?> kind = KStreamKStreamJoin.KStreamKStreamJoinProcessor.class;
          Field shared = field(kind, "sharedTimeTracker");
          Tracker tracker = trackers.computeIfAbsent(shared.get(processor), old -> new Tracker());
          tracker.setEmitInterval(0L);
          shared.set(processor, tracker);
        }
      }
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private static Field field(Class<?> kind, String name) throws NoSuchFieldException {
    Field found = kind.getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }
}
