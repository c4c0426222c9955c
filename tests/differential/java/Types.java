import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.SessionWindowedDeserializer;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;

/** The serdes of the keys and the values of a step or of a topic. */
record Types(Serde<Object> key, Serde<Object> value) {

  /** Reads "key" and "value", each "string" or "long", and "window", the kind of windowed keys. */
  static Types of(JsonNode step) {
    Serde<Object> key = serde(step.get("key").asText());
    return new Types(windowed(key, step.get("window")), serde(step.get("value").asText()));
  }

  @SuppressWarnings("unchecked")
  private static Serde<Object> serde(String name) {
    Serde<?> serde =
        switch (name) {
          case "string" -> Serdes.String();
          case "long" -> Serdes.Long();
          default -> throw new IllegalArgumentException("no such type: " + name);
        };
    return (Serde<Object>) serde;
  }

  @SuppressWarnings("unchecked")
  private static Serde<Object> windowed(Serde<Object> key, JsonNode window) {
    if (window.isNull()) {
      return key;
    }
    Serde<?> serde;
    if (window.get("kind").asText().equals("session")) {
      serde =
          Serdes.serdeFrom(
              new SessionWindowedSerializer<>(key.serializer()),
              new SessionWindowedDeserializer<>(key.deserializer()));
    } else {
      long size = window.get("size_ms").asLong();
      serde =
          Serdes.serdeFrom(
              new TimeWindowedSerializer<>(key.serializer()),
              new TimeWindowedDeserializer<>(key.deserializer(), size));
    }
    return (Serde<Object>) serde;
  }
}
