package kafka_pipeline;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.api.python.PythonException;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.storage.BlockManager;
import py4j.Gateway;

/**
 * Runs plans for those who connect to a Unix socket, each connection on a thread of its own.
 *
 * Anyone who may enter the socket's folder may run them. `plan_calls.py` has the format. With a local
 * master, a plan is computed in the thread that serves the connection, as a task of Spark would be,
 * but without a job; otherwise, by a job.
 *
 * Spark's own compiler, Janino, compiles this file, so it has no lambdas and infers no types.
 */
public final class BatchServer {
    private static final int DONE = 0;
    private static final int FAILED = 1;
    private static final int FAILED_IN_PYTHON = 2;
    private static final int CANCELLED = 3;

    /** The most bytes that go through a socket at once: Java copies and keeps memory for as many. */
    private static final int CHUNK = 65536;

    Gateway gateway;

    /** Listen at a path until the JVM ends, which then deletes the path and its folder. */
    public void listen(Gateway gateway, String path) throws IOException {
        this.gateway = gateway;
        File file = new File(path);
        ServerSocketChannel listening = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        listening.bind(UnixDomainSocketAddress.of(path));
        file.getParentFile().deleteOnExit();
        file.deleteOnExit(); // The JVM deletes the last one first.
        start(new Listener(this, listening), "batches");
    }

    /** Return what computes the plans of one query. */
    public Query query(boolean isLocal) throws Throwable {
        return new Query(isLocal);
    }

    static void start(Runnable runs, String name) {
        Thread thread = new Thread(runs, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Accepts connections. */
    private static final class Listener implements Runnable {
        private final BatchServer server;
        private final ServerSocketChannel listening;

        Listener(BatchServer server, ServerSocketChannel listening) {
            this.server = server;
            this.listening = listening;
        }

        public void run() {
            while (true) {
                try {
                    start(new Connection(this.server, this.listening.accept()), "batch");
                } catch (Throwable error) {
                    // Such as too many open files or threads. Those who wait are served later.
                    try {
                        Thread.sleep(1000L);
                    } catch (InterruptedException ended) {
                        return;
                    }
                }
            }
        }
    }

    /** Answers requests until the other end hangs up. */
    private static final class Connection implements Runnable {
        private final BatchServer server;
        private final SocketChannel channel;

        Connection(BatchServer server, SocketChannel channel) {
            this.server = server;
            this.channel = channel;
        }

        public void run() {
            try {
                DataInputStream given = new DataInputStream(
                    new BufferedInputStream(Channels.newInputStream(this.channel), CHUNK)
                );
                DataOutputStream answer = new DataOutputStream(
                    new BufferedOutputStream(Channels.newOutputStream(this.channel), CHUNK)
                );
                while (true) {
                    this.answer(given, answer);
                    answer.flush();
                }
            } catch (IOException hungUp) {
                // Nobody reads an answer any more.
            } finally {
                try {
                    this.channel.close();
                } catch (IOException closed) {
                    // It is closed anyway.
                }
            }
        }

        private void answer(DataInputStream given, DataOutputStream answer) throws IOException {
            String id = given.readUTF();
            boolean isInterpreted = given.readBoolean();
            int size = given.readInt();
            ArrayList tables = new ArrayList(size);
            for (int leaf = 0; leaf < size; leaf++) {
                tables.add(batches(given));
            }
            List results;
            Plan plan = null;
            try {
                plan = (Plan) this.server.gateway.getObject(id);
                results = plan.results(tables, isInterpreted);
            } catch (Throwable error) {
                int status = statusOf(error);
                if (plan == null || plan.query.isCancelled()) {
                    status = CANCELLED;
                }
                write(answer, status, Collections.singletonList(
                    described(error).getBytes(StandardCharsets.UTF_8)
                ));
                return;
            }
            write(answer, DONE, results);
        }

        private static List batches(DataInputStream given) throws IOException {
            int size = given.readInt();
            ArrayList batches = new ArrayList(size);
            for (int index = 0; index < size; index++) {
                byte[] batch = new byte[given.readInt()];
                for (int at = 0; at < batch.length; at += CHUNK) {
                    given.readFully(batch, at, Math.min(CHUNK, batch.length - at));
                }
                batches.add(batch);
            }
            return batches;
        }

        private static void write(DataOutputStream answer, int status, List parts)
            throws IOException {
            long size = 0;
            for (int index = 0; index < parts.size(); index++) {
                size += 8 + ((byte[]) parts.get(index)).length;
            }
            answer.writeLong(status);
            answer.writeLong(size);
            for (int index = 0; index < parts.size(); index++) {
                byte[] part = (byte[]) parts.get(index);
                answer.writeLong(part.length);
                for (int at = 0; at < part.length; at += CHUNK) {
                    answer.write(part, at, Math.min(CHUNK, part.length - at));
                }
            }
        }

        private static int statusOf(Throwable error) {
            for (Throwable each = error; each != null; each = each.getCause()) {
                if (each instanceof PythonException) {
                    return FAILED_IN_PYTHON;
                }
            }
            return FAILED;
        }

        /** Return an error, or the innermost cause that Spark can name. */
        private static String described(Throwable error) {
            String text = error.toString();
            for (Throwable each = error.getCause(); each != null; each = each.getCause()) {
                if (String.valueOf(each.getMessage()).startsWith("[")) {
                    text = each.toString();
                }
            }
            return text;
        }
    }

    /** Computes the plans of one query, one at a time. Another thread may cancel that. */
    public static final class Query {
        /** Ids of tasks, below those of Spark's own ones, and `BlockInfo.NON_TASK_WRITER`. */
        private static final AtomicLong IDS = new AtomicLong(-1024);

        final boolean isLocal;
        private final MemoryManager memory;
        private final BlockManager blocks;
        private final long id = IDS.decrementAndGet();
        private final TaskMetrics metrics = TaskMetrics.empty();
        private final scala.collection.immutable.Map resources =
            PythonUtils.toScalaMap(new java.util.HashMap());
        private TaskMemoryManager ofTask;
        private TaskContextImpl running;
        private Thread runsIn;
        private boolean isCancelled;

        Query(boolean isLocal) throws Throwable {
            this.isLocal = isLocal;
            this.memory = (MemoryManager) ofSpark("memoryManager", MemoryManager.class);
            this.blocks = (BlockManager) ofSpark("blockManager", BlockManager.class);
            this.ofTask = new TaskMemoryManager(this.memory, this.id);
        }

        /**
         * PySpark does not have all classes that the methods of SparkEnv name, such as protobuf's.
         * A method handle looks at one method only.
         */
        private static Object ofSpark(String name, Class type) throws Throwable {
            Class environment = Class.forName("org.apache.spark.SparkEnv");
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            Object active = lookup
                .findStatic(environment, "get", MethodType.methodType(environment))
                .invokeWithArguments(Collections.emptyList());
            return lookup
                .findVirtual(environment, name, MethodType.methodType(type))
                .invokeWithArguments(Collections.singletonList(active));
        }

        /**
         * Return an RDD of Arrow batches, whose leaves, of one partition each, get new rows before
         * it is computed: with the settings that this thread has now. With a local master, it must
         * not depend on a shuffle, which only a job has.
         */
        public Plan plan(RDD rdd, List leaves) {
            return new Plan(this, rdd, leaves);
        }

        /** End what is computed. Nothing is computed after it. */
        public synchronized void cancel() {
            this.isCancelled = true;
            if (this.running != null) {
                this.running.markInterrupted("the query was cancelled");
                this.runsIn.interrupt();
            }
        }

        synchronized boolean isCancelled() {
            return this.isCancelled;
        }

        /** Return the bytes that tasks of all queries have of Spark's memory in this process. */
        public long memoryUsed() {
            return this.memory.executionMemoryUsed();
        }

        private synchronized void begin(TaskContextImpl context) {
            if (this.isCancelled) {
                throw new IllegalStateException("the query was cancelled");
            }
            this.running = context;
            this.runsIn = Thread.currentThread();
        }

        private synchronized void end() {
            this.running = null;
            Thread.interrupted(); // or the answer could not be sent
        }

        /** Add what a partition has to `results`, by the steps of Spark's `TaskRunner` and `Task`. */
        void compute(
            RDD rdd, Partition partition, int index, Properties settings, List results
        ) {
            // With the id of an earlier task, Spark would not watch a Python function of this one.
            long task = IDS.decrementAndGet();
            TaskContextImpl context = new TaskContextImpl(
                0, 0, index, task, 0, 1, this.ofTask,
                settings, null,
                this.metrics, scala.math.BigDecimal.int2bigDecimal(1), this.resources
            );
            TaskContext$.MODULE$.setTaskContext(context);
            this.blocks.registerTask(task);
            try {
                this.begin(context);
                try {
                    scala.collection.Iterator rows = rdd.iterator(partition, context);
                    while (rows.hasNext()) {
                        results.add(rows.next());
                    }
                } finally {
                    this.end();
                    context.markTaskCompleted(scala.Option.empty());
                }
            } finally {
                this.blocks.releaseAllLocksForTask(task);
                TaskContext$.MODULE$.unset();
                if (this.ofTask.cleanUpAllAllocatedMemory() != 0) {
                    // It still counts pages that operators have not released, as after an error.
                    this.ofTask = new TaskMemoryManager(this.memory, this.id);
                }
            }
        }
    }

    /** An RDD of byte arrays, which are Arrow batches. */
    public static final class Plan {
        private static final scala.collection.immutable.Seq NOTHING =
            PythonUtils.toSeq(new ArrayList());

        final Query query;
        private final RDD rdd;
        private final Partition[] partitions;
        private final List leaves;
        private final Properties settings;
        private final Properties interpreted;

        Plan(Query query, RDD rdd, List leaves) {
            this.query = query;
            this.rdd = rdd;
            this.partitions = rdd.partitions();
            this.leaves = leaves;
            this.settings = (Properties) rdd.sparkContext().getLocalProperties().clone();
            this.interpreted = (Properties) this.settings.clone();
            this.interpreted.setProperty("spark.sql.codegen.factoryMode", "NO_CODEGEN");
        }

        /**
         * Compute the plan with the batches of each leaf.
         *
         * Operators make code for each task again. For few rows, that takes longer than what they
         * do, so these can be interpreted.
         */
        List results(List tables, boolean isInterpreted) {
            Properties settings = isInterpreted ? this.interpreted : this.settings;
            try {
                for (int leaf = 0; leaf < this.leaves.size(); leaf++) {
                    this.put(leaf, PythonUtils.toSeq((List) tables.get(leaf)));
                }
                if (!this.query.isLocal) {
                    this.rdd.sparkContext().setLocalProperties(settings);
                    return Arrays.asList((Object[]) this.rdd.collect());
                }
                ArrayList results = new ArrayList();
                for (int index = 0; index < this.partitions.length; index++) {
                    this.query.compute(
                        this.rdd, this.partitions[index], index, settings, results
                    );
                }
                return results;
            } finally {
                for (int leaf = 0; leaf < this.leaves.size(); leaf++) {
                    this.put(leaf, NOTHING); // or Spark would keep the batch in memory
                }
            }
        }

        private void put(int leaf, scala.collection.immutable.Seq batches) {
            ((ParallelCollectionPartition) this.leaves.get(leaf)).values_$eq(batches);
        }
    }
}
