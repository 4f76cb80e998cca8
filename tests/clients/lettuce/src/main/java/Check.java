import io.lettuce.core.GeoArgs;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.Consumer;
import io.lettuce.core.KeyValue;
import io.lettuce.core.Limit;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SslOptions;
import io.lettuce.core.StreamMessage;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.XAddArgs;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Lettuce over RESP2, RESP3 and TLS. */
public class Check {
    static void same(Object got, Object want) {
        if (!Objects.equals(got, want)) throw new AssertionError("expected " + want + ", got " + got);
    }

    static void fails(String text, Runnable call) {
        try {
            call.run();
        } catch (RedisCommandExecutionException error) {
            same(error.getMessage(), text);
            return;
        }
        throw new AssertionError("no error: " + text);
    }

    static void types(RedisCommands<String, String> db) {
        same(db.flushall(), "OK");
        same(db.set("s", "one", SetArgs.Builder.nx().ex(100)), "OK");
        same(db.set("s", "two", SetArgs.Builder.nx()), null);
        same(db.append("s", "!"), 4L);
        same(db.incrby("n", 42), 42L);
        same(db.incrbyfloat("x", 1.5), 1.5);
        same(db.mget("s", "none"), List.of(KeyValue.just("s", "one!"), KeyValue.empty("none")));
        fails("ERR value is not an integer or out of range", () -> db.incr("s"));
        same(db.hset("h", Map.of("a", "1", "b", "2")), 2L);
        same(db.hgetall("h"), Map.of("a", "1", "b", "2"));
        same(db.rpush("l", "1", "2", "3"), 3L);
        same(db.lrange("l", 0, -1), List.of("1", "2", "3"));
        same(db.sadd("a", "1", "2", "3"), 3L);
        same(db.sadd("b", "2", "3"), 2L);
        same(db.sdiff("a", "b"), Set.of("1"));
        same(db.zadd("z", ScoredValue.just(1, "x"), ScoredValue.just(2.5, "y")), 2L);
        same(db.zrangeWithScores("z", 0, -1), List.of(ScoredValue.just(1, "x"), ScoredValue.just(2.5, "y")));
        same(db.zpopmax("z"), ScoredValue.just(2.5, "y"));
        same(db.setbit("bits", 7, 1), 0L);
        same(db.bitcount("bits"), 1L);
        same(db.pfadd("p", "a", "b"), 1L);
        same(db.pfcount("p"), 2L);
        same(db.geoadd("g", 13.361389, 38.115556, "Palermo"), 1L);
        same(db.georadius("g", 15, 37, 200, GeoArgs.Unit.km), Set.of("Palermo"));
        long keys = ScanIterator.scan(db).stream().count();
        same(db.dbsize(), keys);
    }

    @SuppressWarnings("unchecked")
    static void streams(RedisCommands<String, String> db) {
        same(db.xadd("st", new XAddArgs().id("1-1"), Map.of("a", "1")), "1-1");
        same(db.xadd("st", new XAddArgs().id("1-2"), Map.of("b", "2")), "1-2");
        same(db.xgroupCreate(StreamOffset.from("st", "0"), "group"), "OK");
        List<StreamMessage<String, String>> read =
            db.xreadgroup(Consumer.from("group", "me"), XReadArgs.Builder.count(1).block(1000), StreamOffset.lastConsumed("st"));
        same(read, List.of(new StreamMessage<>("st", "1-1", Map.of("a", "1"))));
        same(db.xpending("st", "group").getCount(), 1L);
        same(db.xack("st", "group", "1-1"), 1L);
        same(db.xlen("st"), 2L);
        same(db.xrevrange("st", io.lettuce.core.Range.unbounded(), Limit.from(1)).get(0).getId(), "1-2");
        same(db.xtrim("st", 1), 1L);
    }

    static void transactions(StatefulRedisConnection<String, String> connection, RedisClient client) throws Exception {
        RedisCommands<String, String> db = connection.sync();
        RedisAsyncCommands<String, String> async = connection.async();
        List<RedisFuture<Long>> futures = new ArrayList<>();
        for (int i = 0; i < 1000; i++) futures.add(async.incr("piped"));
        same(futures.get(999).get(5, TimeUnit.SECONDS), 1000L);
        same(db.multi(), "OK");
        db.set("t", "1");
        db.incr("t");
        TransactionResult result = db.exec();
        same(List.of(result.get(0), result.get(1)), List.of("OK", 2L));
        try (StatefulRedisConnection<String, String> other = client.connect()) {
            same(db.watch("t"), "OK");
            other.sync().set("t", "10");
            db.multi();
            db.set("t", "3");
            same(db.exec().wasDiscarded(), true);
        }
        same(db.get("t"), "10");
    }

    static void scripts(RedisCommands<String, String> db) {
        same(db.eval("return {KEYS[1], ARGV[1], 7}", ScriptOutputType.MULTI, new String[] {"k"}, "v"), List.of("k", "v", 7L));
        String sha = db.scriptLoad("return redis.call('incrby', KEYS[1], ARGV[1])");
        same(db.evalsha(sha, ScriptOutputType.INTEGER, new String[] {"sc"}, "5"), 5L);
        same(db.functionLoad("#!lua name=lettucelib\nredis.register_function('hi', function(keys, args) return 'hi ' .. args[1] end)", true), "lettucelib");
        same(db.fcall("hi", ScriptOutputType.VALUE, new String[0], "you"), "hi you");
    }

    static void messages(RedisClient client, RedisCommands<String, String> db) throws InterruptedException {
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        try (StatefulRedisPubSubConnection<String, String> listener = client.connectPubSub()) {
            listener.addListener(new RedisPubSubAdapter<>() {
                @Override public void message(String channel, String message) {
                    got.add(channel + " " + message);
                }

                @Override public void message(String pattern, String channel, String message) {
                    got.add(pattern + " " + channel + " " + message);
                }
            });
            listener.sync().subscribe("news");
            listener.sync().psubscribe("n*");
            same(db.publish("news", "hello"), 2L);
            same(got.poll(5, TimeUnit.SECONDS), "news hello");
            same(got.poll(5, TimeUnit.SECONDS), "n* news hello");
        }
    }

    static void blocking(RedisClient client, RedisCommands<String, String> db) throws Exception {
        try (StatefulRedisConnection<String, String> waiter = client.connect()) {
            RedisFuture<KeyValue<String, String>> popped = waiter.async().blpop(5, "none", "queue");
            Thread.sleep(50);
            db.rpush("queue", "job");
            same(popped.get(5, TimeUnit.SECONDS), KeyValue.just("queue", "job"));
            same(waiter.sync().blpop(1, "none"), null);
        }
    }

    static void caching(RedisClient client) throws InterruptedException {
        Map<String, String> copies = new ConcurrentHashMap<>();
        try (StatefulRedisConnection<String, String> connection = client.connect();
             StatefulRedisConnection<String, String> other = client.connect()) {
            CacheFrontend<String, String> cache =
                ClientSideCaching.enable(CacheAccessor.forMap(copies), connection, TrackingArgs.Builder.enabled());
            for (int i = 0; i < 100; i++) {
                other.sync().set("cached", "" + i);
                long end = System.nanoTime() + 5_000_000_000L;
                while (!("" + i).equals(cache.get("cached"))) {
                    same(System.nanoTime() < end, true);
                    Thread.sleep(1);
                }
                same(copies.get("cached"), "" + i);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        RedisURI plain = RedisURI.create("localhost", Integer.parseInt(System.getenv("SERVER_PORT")));
        RedisURI secure = RedisURI.builder().withHost("localhost").withPort(Integer.parseInt(System.getenv("SERVER_TLS_PORT"))).withSsl(true).build();
        SslOptions tls = SslOptions.builder().jdkSslProvider().trustManager(new File(System.getenv("TLS_CA")))
            .keyManager(new File(System.getenv("TLS_CERT")), new File(System.getenv("TLS_KEY")), new char[0]).build();
        List<ClientOptions> all = List.of(
            ClientOptions.builder().protocolVersion(ProtocolVersion.RESP2).build(),
            ClientOptions.builder().protocolVersion(ProtocolVersion.RESP3).build(),
            ClientOptions.builder().sslOptions(tls).build());
        for (ClientOptions options : all) {
            RedisClient client = RedisClient.create(options.getSslOptions() == tls ? secure : plain);
            client.setOptions(options);
            try (StatefulRedisConnection<String, String> connection = client.connect()) {
                RedisCommands<String, String> db = connection.sync();
                types(db);
                streams(db);
                transactions(connection, client);
                scripts(db);
                messages(client, db);
                blocking(client, db);
            }
            if (options.getConfiguredProtocolVersion() != ProtocolVersion.RESP2) caching(client);
            client.shutdown(0, 1, TimeUnit.SECONDS);
        }
    }
}
