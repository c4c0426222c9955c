import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Serves a catalog in a database of SQLite, with the REST API of Iceberg, until it is killed. The
 * arguments are a port of the loopback interface, and properties of the catalog as `name=value`.
 */
public final class RestCatalog {
    private RestCatalog() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = new HashMap<>();
        for (int number = 1; number < arguments.length; number++) {
            String[] property = arguments[number].split("=", 2);
            properties.put(property[0], property[1]);
        }
        JdbcCatalog catalog =
                (JdbcCatalog)
                        CatalogUtil.loadCatalog(
                                JdbcCatalog.class.getName(), "rest", properties, null);
        ServletContextHandler handler = new ServletContextHandler();
        RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
        handler.addServlet(new ServletHolder(servlet), "/*");
        Server server =
                new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
