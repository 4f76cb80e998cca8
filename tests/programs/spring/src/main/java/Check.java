import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.stream.Consumer;
import org.springframework.data.redis.connection.stream.ReadOffset;
import org.springframework.data.redis.connection.stream.StreamOffset;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.PatternTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.serializer.RedisSerializer;
import org.springframework.data.redis.stream.StreamMessageListenerContainer;

/** Spring Data Redis over Jedis, with payloads in Kryo's format: listeners of messages and of a stream. */
public class Check {
    static final int COUNT = 1000;

    /** What is sent. */
    public static class Order {
        public int number;
        public String article;
        public List<Double> prices;

        Order() {}

        Order(int number) {
            this.number = number;
            article = "article\0\r\n" + number;
            prices = new java.util.ArrayList<>(List.of(number + 0.5, 1e300));
        }

        @Override public boolean equals(Object other) {
            return other instanceof Order order && number == order.number && article.equals(order.article) && prices.equals(order.prices);
        }

        @Override public int hashCode() {
            return number;
        }
    }

    /** Kryo's instances are not safe for use by several threads. */
    static class KryoSerializer implements RedisSerializer<Object> {
        private final ThreadLocal<Kryo> kryos = ThreadLocal.withInitial(() -> {
            Kryo kryo = new Kryo();
            kryo.register(Order.class);
            kryo.register(java.util.ArrayList.class);
            return kryo;
        });

        @Override public byte[] serialize(Object value) {
            Output output = new Output(256, -1);
            kryos.get().writeClassAndObject(output, value);
            return output.toBytes();
        }

        @Override public Object deserialize(byte[] bytes) {
            return bytes == null ? null : kryos.get().readClassAndObject(new Input(bytes));
        }
    }

    @Configuration
    static class Setup {
        @Bean JedisConnectionFactory connections() {
            return new JedisConnectionFactory(new RedisStandaloneConfiguration("localhost", Integer.parseInt(System.getenv("SERVER_PORT"))));
        }

        @Bean RedisTemplate<String, Object> template(RedisConnectionFactory connections) {
            RedisTemplate<String, Object> template = new RedisTemplate<>();
            template.setConnectionFactory(connections);
            template.setKeySerializer(RedisSerializer.string());
            template.setHashKeySerializer(RedisSerializer.string());
            template.setValueSerializer(new KryoSerializer());
            template.setHashValueSerializer(new KryoSerializer());
            return template;
        }

        @Bean RedisMessageListenerContainer messages(RedisConnectionFactory connections) {
            RedisMessageListenerContainer container = new RedisMessageListenerContainer();
            container.setConnectionFactory(connections);
            return container;
        }
    }

    static void same(Object got, Object want) {
        if (!Objects.equals(got, want)) throw new AssertionError("expected " + want + ", got " + got);
    }

    static void await(CountDownLatch latch, String what) throws InterruptedException {
        if (!latch.await(60, TimeUnit.SECONDS)) throw new AssertionError(latch.getCount() + " more " + what + " are missing");
    }

    static void values(RedisTemplate<String, Object> template) {
        template.opsForValue().set("order", new Order(1), Duration.ofMinutes(1));
        same(template.opsForValue().get("order"), new Order(1));
        template.opsForHash().put("orders", "2", new Order(2));
        same(template.opsForHash().entries("orders"), Map.of("2", new Order(2)));
        template.opsForZSet().add("ranks", new Order(3), 3);
        same(template.opsForZSet().range("ranks", 0, -1), Set.of(new Order(3)));
        List<Object> replies = template.execute(new SessionCallback<>() {
            @Override @SuppressWarnings({"unchecked", "rawtypes"})
            public List<Object> execute(RedisOperations operations) {
                operations.watch("order");
                operations.multi();
                operations.opsForList().rightPush("list", new Order(4));
                operations.opsForList().range("list", 0, -1);
                return operations.exec();
            }
        });
        same(replies, List.of(1L, List.of(new Order(4))));
        same(template.execute(new DefaultRedisScript<>("return redis.call('exists', KEYS[1])", Long.class), List.of("order")), 1L);
    }

    static void messages(RedisTemplate<String, Object> template, RedisMessageListenerContainer container) throws Exception {
        Set<Object> got = ConcurrentHashMap.newKeySet();
        CountDownLatch latch = new CountDownLatch(2 * COUNT);
        container.addMessageListener((message, pattern) -> {
            got.add(new KryoSerializer().deserialize(message.getBody()));
            latch.countDown();
        }, List.of(new ChannelTopic("orders"), new PatternTopic("ord*")));
        for (int i = 0; i < COUNT; i++) template.convertAndSend("orders", new Order(i));
        await(latch, "messages");
        same(got.size(), COUNT);
    }

    static void stream(RedisTemplate<String, Object> template, RedisConnectionFactory connections) throws Exception {
        var options = StreamMessageListenerContainer.StreamMessageListenerContainerOptions.builder()
            .pollTimeout(Duration.ofSeconds(1)).batchSize(50).keySerializer(RedisSerializer.string())
            .hashKeySerializer(RedisSerializer.string()).hashValueSerializer(new KryoSerializer()).build();
        var container = StreamMessageListenerContainer.create(connections, options);
        template.opsForStream().createGroup("stream", ReadOffset.from("0"), "group");
        Set<Object> got = ConcurrentHashMap.newKeySet();
        CountDownLatch latch = new CountDownLatch(COUNT);
        for (String consumer : List.of("one", "two")) {
            container.receive(Consumer.from("group", consumer), StreamOffset.create("stream", ReadOffset.lastConsumed()), record -> {
                got.add(record.getValue().get("order"));
                template.opsForStream().acknowledge("group", record);
                latch.countDown();
            });
        }
        container.start();
        for (int i = 0; i < COUNT; i++) template.opsForStream().add("stream", Map.of("order", new Order(i)));
        await(latch, "records");
        same(got.size(), COUNT);
        container.stop();
        same(template.opsForStream().pending("stream", "group").getTotalPendingMessages(), 0L);
        same(template.opsForStream().size("stream"), (long) COUNT);
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        try (var context = new AnnotationConfigApplicationContext(Setup.class)) {
            RedisTemplate<String, Object> template = context.getBean(RedisTemplate.class);
            values(template);
            messages(template, context.getBean(RedisMessageListenerContainer.class));
            stream(template, context.getBean(RedisConnectionFactory.class));
        }
    }
}
