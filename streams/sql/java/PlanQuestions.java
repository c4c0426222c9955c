package kafka_pipeline;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Answers questions about many parts of a plan, each in one call. Several words are one text, with
 * spaces between them.
 */
public final class PlanQuestions {
    /** Return the ids by which plans refer to columns, in their order. */
    public String ids(Seq columns) {
        StringBuilder words = new StringBuilder();
        for (int index = 0; index < columns.size(); index++) {
            NamedExpression column = (NamedExpression) columns.apply(index);
            words.append(column.exprId().id()).append(' ');
        }
        return words.toString();
    }

    /** Return the names of the classes of operators or expressions, without packages. */
    public String names(Seq nodes) {
        StringBuilder words = new StringBuilder();
        for (int index = 0; index < nodes.size(); index++) {
            words.append(name(nodes.apply(index))).append(' ');
        }
        return words.toString();
    }

    /** Return the names of the classes of the operators in a plan, without packages. */
    public String names(TreeNode plan) {
        StringBuilder words = new StringBuilder(name(plan)).append(' ');
        Seq children = plan.children();
        for (int index = 0; index < children.size(); index++) {
            words.append(this.names((TreeNode) children.apply(index)));
        }
        return words.toString();
    }

    /** Return the ids of the columns that a plan gives, or that its operators refer to. */
    public String used(QueryPlan plan) {
        return this.ids(plan.output()) + this.referred(plan);
    }

    private String referred(QueryPlan plan) {
        StringBuilder words = new StringBuilder(this.ids(plan.references().toSeq()));
        Seq children = plan.children();
        for (int index = 0; index < children.size(); index++) {
            words.append(this.referred((QueryPlan) children.apply(index)));
        }
        return words.toString();
    }

    /**
     * Return the expressions in a plan whose classes have some names. The nodes of its subqueries
     * do not count.
     */
    public Seq expressions(QueryPlan plan, String names) {
        List found = new ArrayList();
        addFromPlan(plan, Arrays.asList(names.split(" ")), found);
        return CollectionConverters.asScala(found).toSeq();
    }

    private static void addFromPlan(QueryPlan plan, Collection names, List found) {
        Seq expressions = plan.expressions();
        for (int index = 0; index < expressions.size(); index++) {
            addFromExpression((TreeNode) expressions.apply(index), names, found);
        }
        Seq children = plan.children();
        for (int index = 0; index < children.size(); index++) {
            addFromPlan((QueryPlan) children.apply(index), names, found);
        }
    }

    private static void addFromExpression(TreeNode expression, Collection names, List found) {
        if (names.contains(name(expression))) {
            found.add(expression);
        }
        Seq children = expression.children();
        for (int index = 0; index < children.size(); index++) {
            addFromExpression((TreeNode) children.apply(index), names, found);
        }
    }

    private static String name(Object node) {
        return ((scala.Product) node).productPrefix();
    }
}
