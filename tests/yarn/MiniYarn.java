import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.log4j.BasicConfigurator;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;

/**
 * Runs a ResourceManager and NodeManagers until standard input ends. The arguments are the folder of
 * their files, the number of NodeManagers, the MiB of each, and the only queue. Clients find the
 * cluster by `conf/yarn-site.xml` there, which appears once all NodeManagers are connected.
 */
public final class MiniYarn {
    private MiniYarn() {}

    public static void main(String[] arguments) throws Exception {
        BasicConfigurator.configure();
        Logger.getRootLogger().setLevel(Level.WARN);
        File conf = new File(arguments[0], "conf");
        int nodes = Integer.parseInt(arguments[1]);
        String queue = arguments[3];
        Configuration settings = new YarnConfiguration();
        settings.set(YarnConfiguration.YARN_MINICLUSTER_NM_PMEM_MB, arguments[2]);
        // As on real hosts, a container that is larger than its size is killed.
        settings.set(YarnConfiguration.YARN_MINICLUSTER_CONTROL_RESOURCE_MONITORING, "true");
        settings.set("yarn.scheduler.capacity.root.queues", queue);
        settings.set("yarn.scheduler.capacity.root." + queue + ".capacity", "100");
        // The disk of this machine may be nearly full, which is nothing to do with the tests.
        settings.set(YarnConfiguration.NM_DISK_HEALTH_CHECK_ENABLE, "false");
        MiniYARNCluster cluster = new MiniYARNCluster("cluster", nodes, 1, 1);
        cluster.init(settings);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the NodeManagers do not connect");
        }
        conf.mkdirs();
        File part = new File(conf, "part");
        try (OutputStream file = new FileOutputStream(part)) {
            cluster.getConfig().writeXml(file);
        }
        part.renameTo(new File(conf, "yarn-site.xml"));
        while (System.in.read() >= 0) {}
        // To stop it takes half a minute, and containers end with the process that they work for.
        Runtime.getRuntime().halt(0);
    }
}
