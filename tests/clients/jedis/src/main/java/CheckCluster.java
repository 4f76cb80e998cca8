import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.util.KeyValue;

/** Jedis's client for clusters, on three nodes that were put together: it goes where it is sent, also while slots move. */
public class CheckCluster {
    static final List<Integer> PORTS =
        Stream.of(System.getenv("NODE_PORTS").split(" ")).map(Integer::valueOf).collect(Collectors.toList());

    static void same(Object got, Object want) {
        if (!Objects.equals(got, want)) throw new AssertionError("expected " + want + ", got " + got);
    }

    static void commands(RedisClusterClient db) throws Exception {
        for (int number = 0; number < 300; number++) db.set("key:" + number, String.valueOf(number));
        try (ClusterPipeline pipeline = db.pipelined()) {
            Map<Integer, Response<Long>> replies = new HashMap<>();
            for (int number = 0; number < 300; number++) replies.put(number, pipeline.incr("key:" + number));
            pipeline.sync();
            replies.forEach((number, reply) -> same(reply.get(), number + 1L));
        }
        same(db.getClusterNodes().size(), 3);
        same(db.dbSize(), 300L);
        same(db.eval("return redis.call('incrby', KEYS[1], ARGV[1])", List.of("{tag}a"), List.of("5")), 5L);
        same(db.mset("{tag}b", "1", "{tag}c", "2"), "OK");
        same(db.mget("{tag}a", "{tag}b"), List.of("5", "1"));
        // A message to the channel of a shard.
        CountDownLatch subscribed = new CountDownLatch(1), received = new CountDownLatch(1);
        JedisShardedPubSub listener = new JedisShardedPubSub() {
            @Override
            public void onSSubscribe(String channel, int count) {
                subscribed.countDown();
            }

            @Override
            public void onSMessage(String channel, String message) {
                if (message.equals("hello")) received.countDown();
                sunsubscribe();
            }
        };
        CompletableFuture<Void> listening = CompletableFuture.runAsync(() -> db.ssubscribe(listener, "channel"));
        same(subscribed.await(20, TimeUnit.SECONDS), true);
        same(db.spublish("channel", "hello"), 1L);
        same(received.await(20, TimeUnit.SECONDS), true);
        listening.get(20, TimeUnit.SECONDS);
    }

    /** Counts while slots go to another node as a whole: each is counted once. */
    static void moving(RedisClusterClient db) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        Map<String, Long> counts = new HashMap<>();
        CompletableFuture<Void> counting = CompletableFuture.runAsync(() -> {
            for (int number = 0; !isOver.get(); number++) {
                String key = "count:" + number % 200;
                db.incr(key);
                counts.merge(key, 1L, Long::sum);
            }
        });
        try (RedisClient from = RedisClient.create("127.0.0.1", PORTS.get(0));
             RedisClient to = RedisClient.create("127.0.0.1", PORTS.get(1))) {
            List<?> own = ((List<?>) from.sendCommand(Command.CLUSTER, "SLOTS")).stream().map(range -> (List<?>) range)
                .filter(range -> ((List<?>) range.get(2)).get(1).equals((long) PORTS.get(0))).findFirst().get();
            String target = new String((byte[]) to.sendCommand(Command.CLUSTER, "MYID"));
            from.sendCommand(Command.CLUSTER, "MIGRATESLOTS", "SLOTSRANGE", own.get(0).toString(), own.get(1).toString(), "NODE", target);
            for (String state = ""; !state.equals("success"); Thread.sleep(50)) {
                List<?> all = (List<?>) from.sendCommand(Command.CLUSTER, "GETSLOTMIGRATIONS");
                for (Object field : (List<?>) all.get(all.size() - 1)) {
                    KeyValue<?, ?> pair = (KeyValue<?, ?>) field;
                    if (new String((byte[]) pair.getKey()).equals("state")) state = new String((byte[]) pair.getValue());
                }
                same(state.equals("failed"), false);
            }
        } finally {
            isOver.set(true);
        }
        counting.get(60, TimeUnit.SECONDS);
        counts.forEach((key, count) -> same(db.get(key), count.toString()));
    }

    public static void main(String[] args) throws Exception {
        try (RedisClusterClient db = RedisClusterClient.create(Set.of(new HostAndPort("127.0.0.1", PORTS.get(0))))) {
            db.flushAll();
            commands(db);
            moving(db);
        }
    }
}
