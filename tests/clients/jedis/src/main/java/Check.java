import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.resps.StreamEntry;

/** Jedis over RESP2, RESP3 and TLS; its own cache it has for servers of Redis 7.4 and later only. */
public class Check {
    static final int PORT = Integer.parseInt(System.getenv("SERVER_PORT"));

    static void same(Object got, Object want) {
        if (!Objects.equals(got, want)) throw new AssertionError("expected " + want + ", got " + got);
    }

    static void fails(String text, Runnable call) {
        try {
            call.run();
        } catch (JedisDataException error) {
            same(error.getMessage(), text);
            return;
        }
        throw new AssertionError("no error: " + text);
    }

    static void types(RedisClient db) {
        same(db.flushAll(), "OK");
        same(db.set("s", "one", SetParams.setParams().nx().ex(100)), "OK");
        same(db.set("s", "two", SetParams.setParams().nx()), null);
        same(db.append("s", "!"), 4L);
        same(db.incrBy("n", 42), 42L);
        same(db.incrByFloat("x", 1.5), 1.5);
        same(db.mget("s", "none"), Arrays.asList("one!", null));
        fails("ERR value is not an integer or out of range", () -> db.incr("s"));
        fails("WRONGTYPE Operation against a key holding the wrong kind of value", () -> db.lpush("s", "x"));
        same(db.hset("h", Map.of("a", "1", "b", "2")), 2L);
        same(db.hgetAll("h"), Map.of("a", "1", "b", "2"));
        same(db.rpush("l", "1", "2", "3"), 3L);
        same(db.lmove("l", "l", ListDirection.LEFT, ListDirection.RIGHT), "1");
        same(db.lrange("l", 0, -1), List.of("2", "3", "1"));
        same(db.sadd("a", "1", "2", "3"), 3L);
        same(db.sadd("b", "2", "3"), 2L);
        same(db.sdiff("a", "b"), Set.of("1"));
        same(db.zadd("z", Map.of("x", 1.0, "y", 2.5)), 2L);
        same(db.zscore("z", "y"), 2.5);
        same(db.zrange("z", 0, -1), List.of("x", "y"));
        same(db.zpopmin("z").getElement(), "x");
        same(db.setbit("bits", 7, true), false);
        same(db.bitcount("bits"), 1L);
        same(db.bitfield("bits", "get", "u8", "0"), List.of(1L));
        same(db.pfadd("p", "a", "b"), 1L);
        same(db.pfcount("p"), 2L);
        same(db.geoadd("g", 13.361389, 38.115556, "Palermo"), 1L);
        same(db.geosearch("g", new GeoCoordinate(15, 37), 200, GeoUnit.KM).get(0).getMemberByString(), "Palermo");
        same(db.sort("l"), List.of("1", "2", "3"));
        same(db.scan("0").getCursor() != null, true);
    }

    static void streams(RedisClient db) {
        StreamEntryID first = new StreamEntryID(1, 1);
        same(db.xadd("st", first, Map.of("a", "1")), first);
        same(db.xadd("st", StreamEntryID.NEW_ENTRY, Map.of("b", "2")).getTime() > 1, true);
        same(db.xgroupCreate("st", "group", new StreamEntryID(), false), "OK");
        List<Map.Entry<String, List<StreamEntry>>> read = db.xreadGroup("group", "me",
            XReadGroupParams.xReadGroupParams().count(1).block(1000), Map.of("st", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
        same(read.get(0).getValue().get(0).getFields(), Map.of("a", "1"));
        same(db.xpending("st", "group").getTotal(), 1L);
        same(db.xack("st", "group", first), 1L);
        same(db.xinfoStream("st").getLength(), 2L);
        same(db.xinfoGroups("st").get(0).getName(), "group");
        same(db.xread(XReadParams.xReadParams().count(1), Map.of("st", first)).get(0).getValue().size(), 1);
        same(db.xtrim("st", 1, false), 1L);
    }

    static void transactions(RedisClient db) {
        List<Response<Long>> replies = new ArrayList<>();
        try (Pipeline pipeline = db.pipelined()) {
            for (int i = 0; i < 1000; i++) replies.add(pipeline.incr("piped"));
        }
        same(replies.get(999).get(), 1000L);
        try (AbstractTransaction multi = db.multi()) {
            multi.set("t", "1");
            Response<Long> sum = multi.incr("t");
            same(multi.exec(), List.of("OK", 2L));
            same(sum.get(), 2L);
        }
        try (AbstractTransaction multi = db.transaction(false)) {
            multi.watch("t");
            db.set("t", "10");
            multi.multi();
            multi.set("t", "3");
            same(multi.exec(), null);
        }
        same(db.get("t"), "10");
    }

    static void scripts(RedisClient db) {
        same(db.eval("return {KEYS[1], ARGV[1], 7}", 1, "k", "v"), List.of("k", "v", 7L));
        String sha = db.scriptLoad("return redis.call('incrby', KEYS[1], ARGV[1])");
        same(db.evalsha(sha, 1, "sc", "5"), 5L);
        same(db.scriptExists(List.of(sha, "nosuch")), List.of(true, false));
        same(db.functionLoadReplace("#!lua name=javalib\nredis.register_function('hi', function(keys, args) return 'hi ' .. args[1] end)"), "javalib");
        same(db.fcall("hi", List.of(), List.of("you")), "hi you");
        same(db.functionDelete("javalib"), "OK");
    }

    static void messages(RedisClient db) throws InterruptedException {
        List<String> got = new ArrayList<>();
        CountDownLatch ready = new CountDownLatch(2);
        JedisPubSub listener = new JedisPubSub() {
            @Override public void onSubscribe(String channel, int count) {
                ready.countDown();
                try {
                    psubscribe("n*");
                } catch (RuntimeException error) {
                    got.add(error.toString());
                }
            }

            @Override public void onPSubscribe(String pattern, int count) {
                ready.countDown();
            }

            @Override public void onMessage(String channel, String message) {
                got.add(channel + " " + message);
            }

            @Override public void onPMessage(String pattern, String channel, String message) {
                got.add(pattern + " " + channel + " " + message);
                unsubscribe();
                punsubscribe();
            }
        };
        Thread thread = new Thread(() -> db.subscribe(listener, "news"));
        thread.start();
        same(ready.await(5, TimeUnit.SECONDS), true);
        same(db.publish("news", "hello"), 2L);
        thread.join(5000);
        same(got, List.of("news hello", "n* news hello"));
    }

    static void blocking(RedisClient db) throws InterruptedException {
        Thread later = new Thread(() -> {
            try {
                Thread.sleep(50);
            } catch (InterruptedException error) {
                return;
            }
            db.rpush("queue", "job");
        });
        later.start();
        same(db.blpop(5, "none", "queue"), List.of("queue", "job"));
        same(db.blpop(0.1, "none"), null);
        later.join();
    }

    static SSLSocketFactory sockets() throws Exception {
        char[] password = "secret".toCharArray();
        KeyStore own = KeyStore.getInstance("PKCS12");
        try (FileInputStream file = new FileInputStream(System.getenv("TLS_STORE"))) {
            own.load(file, password);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, password);
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        try (FileInputStream file = new FileInputStream(System.getenv("TLS_CA"))) {
            trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context.getSocketFactory();
    }

    public static void main(String[] args) throws Exception {
        int tlsPort = Integer.parseInt(System.getenv("SERVER_TLS_PORT"));
        DefaultJedisClientConfig.Builder tls = DefaultJedisClientConfig.builder().ssl(true).sslSocketFactory(sockets());
        List<RedisClient> clients = List.of(
            RedisClient.builder().hostAndPort("localhost", PORT).clientConfig(DefaultJedisClientConfig.builder().resp2().build()).build(),
            RedisClient.builder().hostAndPort("localhost", PORT).clientConfig(DefaultJedisClientConfig.builder().resp3().build()).build(),
            RedisClient.builder().hostAndPort("localhost", tlsPort).clientConfig(tls.build()).build());
        for (RedisClient db : clients) {
            try (db) {
                types(db);
                streams(db);
                transactions(db);
                scripts(db);
                messages(db);
                blocking(db);
            }
        }
    }
}
