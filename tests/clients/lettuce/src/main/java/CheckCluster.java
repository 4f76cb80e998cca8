import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.async.RedisAdvancedClusterAsyncCommands;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** Lettuce's client for clusters, on three nodes that were put together: it goes where it is sent, also while slots move. */
public class CheckCluster {
    static final String[] PORTS = System.getenv("NODE_PORTS").split(" ");

    static void same(Object got, Object want) {
        if (!Objects.equals(got, want)) throw new AssertionError("expected " + want + ", got " + got);
    }

    static void commands(StatefulRedisClusterConnection<String, String> connection) throws Exception {
        RedisAdvancedClusterCommands<String, String> db = connection.sync();
        RedisAdvancedClusterAsyncCommands<String, String> later = connection.async();
        for (int number = 0; number < 300; number++) db.set("key:" + number, String.valueOf(number));
        List<RedisFuture<Long>> replies = new ArrayList<>();
        for (int number = 0; number < 300; number++) replies.add(later.incr("key:" + number));
        for (int number = 0; number < 300; number++) same(replies.get(number).get(20, TimeUnit.SECONDS), number + 1L);
        same(db.dbsize(), 300L);
        // Keys of all nodes in one call, which the client divides.
        same(db.mget("key:0", "key:1", "key:2"), List.of(KeyValue.just("key:0", "1"), KeyValue.just("key:1", "2"), KeyValue.just("key:2", "3")));
        same(db.eval("return redis.call('incrby', KEYS[1], ARGV[1])", ScriptOutputType.INTEGER, new String[] {"{tag}a"}, "5"), 5L);
        same(db.masters().size(), 3);
        same(connection.getPartitions().size(), 3);
    }

    static List<Object> ask(RedisCommands<String, String> node, String... words) {
        CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
        for (String word : words) args.add(word);
        return node.dispatch(CommandType.CLUSTER, new NestedMultiOutput<>(StringCodec.UTF8), args);
    }

    /** Counts while slots go to another node as a whole: each is counted once. */
    static void moving(RedisAdvancedClusterCommands<String, String> db) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        Map<String, Long> counts = new HashMap<>();
        CompletableFuture<Void> counting = CompletableFuture.runAsync(() -> {
            for (int number = 0; !isOver.get(); number++) {
                String key = "count:" + number % 200;
                db.incr(key);
                counts.merge(key, 1L, Long::sum);
            }
        });
        RedisClient client = RedisClient.create();
        try (StatefulRedisConnection<String, String> source = client.connect(RedisURI.create("redis://127.0.0.1:" + PORTS[0]));
             StatefulRedisConnection<String, String> target = client.connect(RedisURI.create("redis://127.0.0.1:" + PORTS[1]))) {
            RedisCommands<String, String> from = source.sync();
            List<?> own = from.clusterSlots().stream().map(range -> (List<?>) range)
                .filter(range -> ((List<?>) range.get(2)).get(1).toString().equals(PORTS[0])).findFirst().get();
            ask(from, "MIGRATESLOTS", "SLOTSRANGE", own.get(0).toString(), own.get(1).toString(), "NODE", target.sync().clusterMyId());
            for (Object state = ""; !state.equals("success"); Thread.sleep(50)) {
                List<Object> all = ask(from, "GETSLOTMIGRATIONS");
                List<?> last = (List<?>) all.get(all.size() - 1);
                state = last.get(last.indexOf("state") + 1);
                same(state.equals("failed"), false);
            }
        } finally {
            isOver.set(true);
            client.shutdown();
        }
        counting.get(60, TimeUnit.SECONDS);
        counts.forEach((key, count) -> same(db.get(key), count.toString()));
    }

    public static void main(String[] args) throws Exception {
        RedisClusterClient client = RedisClusterClient.create(RedisURI.create("redis://127.0.0.1:" + PORTS[0]));
        ClusterTopologyRefreshOptions refresh = ClusterTopologyRefreshOptions.builder().enableAllAdaptiveRefreshTriggers().build();
        client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
        try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
            connection.sync().flushall();
            commands(connection);
            moving(connection.sync());
        }
        client.shutdown();
    }
}
