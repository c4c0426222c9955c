import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;

/**
 * Runs a connector of Debezium, and prints each record: topic, key and value, the latter two in
 * base64, or "-" for null. The argument is the file with the connector's properties.
 */
public final class Connector {
    private Connector() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0], StandardCharsets.UTF_8)) {
            properties.load(file);
        }
        PrintStream out = System.out;
        DebeziumEngine<ChangeEvent<String, String>> engine =
            DebeziumEngine.create(Json.class)
                .using(properties)
                .using((succeeded, message, error) -> {
                    if (error != null) {
                        error.printStackTrace();
                    }
                    System.err.println("ended: " + message);
                    System.exit(succeeded ? 0 : 1);
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> each : records) {
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

    private static String coded(String text) {
        if (text == null) {
            return "-";
        }
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
