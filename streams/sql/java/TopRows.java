package kafka_pipeline;

import java.util.Arrays;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectTopK;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.util.BoundedPriorityQueue;
import scala.collection.Iterator;
import scala.math.Ordering;

/**
 * Makes the function that keeps the smallest rows of a group.
 *
 * Spark's own makes what compares rows for each group, and again for each row that it reads from a
 * buffer, which takes longer than all else that is done with a group of a few rows. This one makes
 * it once. Its buffers and results are the same.
 */
public final class TopRows {
    /** Return the function. Executors do not have this class, so on a cluster it is Spark's own. */
    public CollectTopK function(Expression row, int size) {
        if (SparkContext.getOrCreate().isLocal()) {
            return new Function(row, size, 0, 0);
        }
        return new CollectTopK(row, size, true);
    }

    public static final class Function extends CollectTopK {
        private transient Ordering ordering;

        public Function(Expression row, int size, int mutableOffset, int inputOffset) {
            super(row, size, true, mutableOffset, inputOffset);
        }

        private Ordering order() {
            if (ordering == null) {
                ordering = TypeUtils.getInterpretedOrdering(child().dataType());
            }
            return ordering;
        }

        public BoundedPriorityQueue createAggregationBuffer() {
            // A queue keeps the largest.
            return new BoundedPriorityQueue(num(), order().reverse());
        }

        public Object eval(BoundedPriorityQueue buffer) {
            Object[] rows = new Object[buffer.size()];
            Iterator each = buffer.iterator();
            for (int place = 0; place < rows.length; place++) {
                rows[place] = each.next();
            }
            if (rows.length > 1) {
                Arrays.sort(rows, order());
            }
            return new GenericArrayData(rows);
        }

        public CollectTopK withNewMutableAggBufferOffset(int offset) {
            return new Function(child(), num(), offset, inputAggBufferOffset());
        }

        public CollectTopK withNewInputAggBufferOffset(int offset) {
            return new Function(child(), num(), mutableAggBufferOffset(), offset);
        }

        public CollectTopK withNewChildInternal(Expression row) {
            return new Function(row, num(), mutableAggBufferOffset(), inputAggBufferOffset());
        }
    }
}
