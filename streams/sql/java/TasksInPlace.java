package kafka_pipeline;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;

/**
 * Computes RDDs of one query in the thread that asks for them, as tasks of Spark would, but without
 * a job. One thread at a time, but for `cancel`.
 *
 * Spark's own compiler, Janino, compiles this file, so it has no lambdas and infers no types.
 */
public final class TasksInPlace {
    /** Spark's `BlockInfo.NON_TASK_WRITER`: blocks are locked as by other threads of the driver. */
    private static final long NO_TASK = -1024L;

    /** Ids of tasks for the memory, below those of Spark's own tasks. */
    private static final AtomicLong IDS = new AtomicLong(0);

    private final MemoryManager memory;

    private final long id = IDS.decrementAndGet();
    private final TaskMetrics metrics = TaskMetrics.empty();
    private final scala.collection.immutable.Map resources =
        PythonUtils.toScalaMap(new java.util.HashMap());
    private TaskMemoryManager ofTask;
    private TaskContextImpl running;
    private Thread runsIn;
    private boolean isCancelled;

    /** Start in the process of Spark's driver. */
    public TasksInPlace() throws Throwable {
        this.memory = memoryOfSpark();
        this.ofTask = new TaskMemoryManager(this.memory, this.id);
    }

    /**
     * PySpark does not have all classes that the methods of SparkEnv name, such as protobuf's. A
     * method handle looks at one method only.
     */
    private static MemoryManager memoryOfSpark() throws Throwable {
        Class environment = Class.forName("org.apache.spark.SparkEnv");
        MethodHandles.Lookup lookup = MethodHandles.publicLookup();
        Object active = lookup
            .findStatic(environment, "get", MethodType.methodType(environment))
            .invokeWithArguments(Collections.emptyList());
        return (MemoryManager) lookup
            .findVirtual(environment, "memoryManager", MethodType.methodType(MemoryManager.class))
            .invokeWithArguments(Collections.singletonList(active));
    }

    /** Return an RDD whose leaves, of one partition each, get new rows before it is computed. */
    public Plan plan(RDD rdd, List leaves) {
        return new Plan(this, rdd, leaves);
    }

    /** End from another thread what is computed. Nothing is computed after it. */
    public synchronized void cancel() {
        this.isCancelled = true;
        if (this.running != null) {
            this.running.markInterrupted("the query was cancelled");
            this.runsIn.interrupt();
        }
    }

    /** Return the bytes that tasks of all queries have of Spark's memory in this process. */
    public long memoryUsed() {
        return this.memory.executionMemoryUsed();
    }

    /** Note which task runs now, if any. */
    private synchronized void note(TaskContextImpl context) {
        if (this.isCancelled && context != null) {
            throw new IllegalStateException("the query was cancelled");
        }
        this.running = context;
        this.runsIn = Thread.currentThread();
    }

    /** Add what a partition has to `results`, by the steps of Spark's `TaskRunner` and `Task`. */
    private void compute(
        RDD rdd, Partition partition, int index, Properties settings, List results
    ) {
        TaskContextImpl context = new TaskContextImpl(
            0, 0, index, NO_TASK, 0, 1, this.ofTask,
            settings, null,
            this.metrics, scala.math.BigDecimal.int2bigDecimal(1), this.resources
        );
        TaskContext$.MODULE$.setTaskContext(context);
        try {
            this.note(context);
            try {
                scala.collection.Iterator rows = rdd.iterator(partition, context);
                while (rows.hasNext()) {
                    results.add(rows.next());
                }
            } finally {
                this.note(null);
                context.markTaskCompleted(scala.Option.empty());
            }
        } finally {
            TaskContext$.MODULE$.unset();
            if (this.ofTask.cleanUpAllAllocatedMemory() != 0) {
                // It still counts the pages that operators have not released, as after an error.
                this.ofTask = new TaskMemoryManager(this.memory, this.id);
            }
        }
    }

    /** An RDD of byte arrays, which are Arrow batches. */
    public static final class Plan {
        private static final scala.collection.immutable.Seq NOTHING =
            PythonUtils.toSeq(new ArrayList());

        private final TasksInPlace tasks;
        private final RDD rdd;
        private final Partition[] partitions;
        private final List leaves;
        private String answer = "";
        private int answered = 0;

        Plan(TasksInPlace tasks, RDD rdd, List leaves) {
            this.tasks = tasks;
            this.rdd = rdd;
            this.partitions = rdd.partitions();
            this.leaves = leaves;
        }

        /** Set the rows of a leaf, until the plan was computed. */
        public void put(int leaf, scala.collection.immutable.Seq batches) {
            ((ParallelCollectionPartition) this.leaves.get(leaf)).values_$eq(batches);
        }

        /** Compute the plan, and return its batches as a Scala Iterator. */
        public scala.collection.Iterator compute() {
            return PythonUtils.toSeq(this.computed(this.settings())).iterator();
        }

        /**
         * Compute the plan with `tables`: for each leaf the number of its batches, and for each of
         * these its length and content. All numbers have 4 bytes.
         *
         * Returns the batches that it gives, with their lengths, in Base64: the first `most`
         * characters. If there are as many, `more` returns those that follow.
         *
         * Operators make code for each task again. For few rows, that takes longer than what they
         * do, so here they are interpreted.
         */
        public String run(byte[] tables, int most) throws IOException {
            DataInputStream given = new DataInputStream(new ByteArrayInputStream(tables));
            for (int leaf = 0; leaf < this.leaves.size(); leaf++) {
                int size = given.readInt();
                ArrayList batches = new ArrayList(size);
                for (int index = 0; index < size; index++) {
                    byte[] batch = new byte[given.readInt()];
                    given.readFully(batch);
                    batches.add(batch);
                }
                this.put(leaf, PythonUtils.toSeq(batches));
            }
            Properties settings = (Properties) this.settings().clone();
            settings.setProperty("spark.sql.codegen.factoryMode", "NO_CODEGEN");
            List results = this.computed(settings);
            ByteArrayOutputStream framed = new ByteArrayOutputStream();
            DataOutputStream written = new DataOutputStream(framed);
            for (int index = 0; index < results.size(); index++) {
                byte[] batch = (byte[]) results.get(index);
                written.writeInt(batch.length);
                written.write(batch);
            }
            this.answer = Base64.getEncoder().encodeToString(framed.toByteArray());
            this.answered = 0;
            return this.more(most);
        }

        /** Return the next characters of the answer of `run`, at most as many. */
        public String more(int most) {
            int end = Math.min(this.answered + most, this.answer.length());
            String next = this.answer.substring(this.answered, end);
            this.answered = end;
            if (next.length() < most) {
                this.answer = "";
            }
            return next;
        }

        private Properties settings() {
            return this.rdd.sparkContext().getLocalProperties();
        }

        private List computed(Properties settings) {
            ArrayList results = new ArrayList();
            try {
                for (int index = 0; index < this.partitions.length; index++) {
                    this.tasks.compute(
                        this.rdd, this.partitions[index], index, settings, results
                    );
                }
            } finally {
                for (int leaf = 0; leaf < this.leaves.size(); leaf++) {
                    this.put(leaf, NOTHING); // or Spark would keep the batch in memory
                }
            }
            return results;
        }
    }
}
