package kafka_pipeline;

import java.util.ArrayList;

import py4j.Gateway;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Takes and gives many objects that Python knows, each with one call. They are named by their ids in
 * py4j, as one text with spaces between them.
 */
public final class Objects {
    private Gateway gateway;

    /** Say which gateway knows the objects. */
    public void use(Gateway gateway) {
        this.gateway = gateway;
    }

    /** Return the ids of the items of a sequence, in its order. */
    public String items(Seq seq) {
        StringBuilder ids = new StringBuilder();
        for (int index = 0; index < seq.size(); index++) {
            ids.append(this.gateway.putNewObject(seq.apply(index))).append(' ');
        }
        return ids.toString();
    }

    /** Return a sequence of the objects with these ids. */
    public Seq seq(String ids) {
        ArrayList values = new ArrayList();
        String[] words = ids.split(" ");
        for (int index = 0; index < words.length; index++) {
            values.add(this.gateway.getObject(words[index]));
        }
        return CollectionConverters.asScala(values).toSeq();
    }

    /** Forget objects that Python no longer uses. */
    public void release(String ids) {
        String[] words = ids.split(" ");
        for (int index = 0; index < words.length; index++) {
            this.gateway.deleteObject(words[index]);
        }
    }
}
