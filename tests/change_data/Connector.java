import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Avro;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.SerializationFormat;
import java.io.FileReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;

/**
 * Runs a connector of Debezium, and prints each record: topic, key and value, the latter two in
 * base64, or "-" for null. The arguments are the file with the connector's properties, and the
 * format of records: json or avro.
 */
public final class Connector {
    private Connector() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0], StandardCharsets.UTF_8)) {
            properties.load(file);
        }
        if (arguments[1].equals("avro")) {
            run(Avro.class, properties, System.out);
        } else {
            run(Json.class, properties, System.out);
        }
    }

    private static <T> void run(
            Class<? extends SerializationFormat<T>> format, Properties properties, PrintStream out) {
        DebeziumEngine<ChangeEvent<T, T>> engine =
            DebeziumEngine.create(format)
                .using(properties)
                .using((succeeded, message, error) -> {
                    if (error != null) {
                        error.printStackTrace();
                    }
                    System.err.println("ended: " + message);
                    System.exit(succeeded ? 0 : 1);
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<T, T> each : records) {
                        out.println(
                            each.destination() + " " + coded(each.key()) + " " + coded(each.value()));
                        committer.markProcessed(each);
                    }
                    out.flush();
                    committer.markBatchFinished();
                })
                .build();
        engine.run();
    }

    private static String coded(Object part) {
        if (part == null) {
            return "-";
        }
        byte[] data =
            part instanceof byte[] bytes ? bytes : part.toString().getBytes(StandardCharsets.UTF_8);
        return Base64.getEncoder().encodeToString(data);
    }
}
