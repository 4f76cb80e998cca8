//! redis-rs: the blocking interface and the asynchronous one, over RESP2, RESP3 and TLS.

use futures_util::StreamExt;
use redis::{
    Client, ClientTlsConfig, Commands, Connection, ConnectionInfo, Direction, ErrorKind, FromRedisValue,
    IntoConnectionInfo, PushKind, RedisResult, Script, TlsCertificates, Value,
    aio::ConnectionManager,
    cmd, pipe,
    streams::{StreamReadOptions, StreamReadReply},
    transaction,
};
use std::{collections::HashMap, env, fs, sync::mpsc, thread, time::Duration};

fn same<T: PartialEq + std::fmt::Debug>(got: T, want: T) {
    assert_eq!(got, want, "left: got, right: expected");
}

fn types(db: &mut Connection) -> RedisResult<()> {
    cmd("FLUSHALL").exec(db)?;
    same(db.set_ex::<_, _, String>("s", "one", 100)?, "OK".into());
    same(db.append("s", "!")?, 4);
    same(db.incr("n", 42)?, 42);
    same(db.mget(&["s", "none"])?, vec![Some("one!".to_owned()), None]);
    let error = db.incr::<_, _, i64>("s", 1).unwrap_err();
    same(error.to_string().contains("value is not an integer or out of range"), true);
    same(db.hset_multiple("h", &[("a", 1), ("b", 2)])?, "OK".to_owned());
    same(db.hgetall("h")?, HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    same(db.rpush("l", &[1, 2, 3])?, 3);
    same(db.lmove("l", "l", Direction::Left, Direction::Right)?, 1);
    same(db.lrange("l", 0, -1)?, vec![2, 3, 1]);
    same(db.sadd("set", &[1, 2])?, 2);
    same(db.sismember("set", 2)?, true);
    same(db.zadd_multiple("z", &[(1.0, "x"), (2.5, "y")])?, 2);
    same(db.zrange_withscores("z", 0, -1)?, vec![("x".to_owned(), 1.0), ("y".to_owned(), 2.5)]);
    same(db.setbit("bits", 7, true)?, false);
    same(db.bitcount("bits")?, 1);
    same(db.pfadd("p", &["a", "b"])?, true);
    same(db.pfcount("p")?, 2);
    same(db.geo_add("g", (13.361389, 38.115556, "Palermo"))?, 1);
    same(db.geo_hash("g", "Palermo")?, vec!["sqc8b49rny0".to_owned()]);
    let mut keys = db.scan::<String>()?.collect::<RedisResult<Vec<_>>>()?;
    keys.sort();
    same(keys, ["bits", "g", "h", "l", "n", "p", "s", "set", "z"].map(str::to_owned).into());
    Ok(())
}

fn streams(db: &mut Connection) -> RedisResult<()> {
    same(db.xadd("st", "1-1", &[("a", "1")])?, "1-1".to_owned());
    same(db.xgroup_create("st", "group", "0")?, "OK".to_owned());
    let options = StreamReadOptions::default().group("group", "me").count(1).block(1000);
    let read: StreamReadReply = db.xread_options(&["st"], &[">"], &options)?;
    same(read.keys[0].ids[0].get::<String>("a"), Some("1".into()));
    same(db.xack("st", "group", &["1-1"])?, 1);
    same(db.xlen("st")?, 1);
    Ok(())
}

fn transactions(db: &mut Connection, client: &Client) -> RedisResult<()> {
    let mut pipeline = pipe();
    for _ in 0..1000 {
        pipeline.incr("piped", 1);
    }
    same(pipeline.query::<Vec<i64>>(db)?[999], 1000);
    same(pipe().atomic().set("t", 1).ignore().incr("t", 1).query(db)?, vec![2]);
    let mut other = client.get_connection()?;
    let mut lost = 0;
    let sum: Vec<i64> = transaction(db, &["t"], |db, pipeline| {
        let old: i64 = db.get("t")?;
        if lost == 0 {
            lost = 1;
            other.set::<_, _, ()>("t", 10)?;
        }
        pipeline.set("t", old + 1).ignore().incr("t", 0).query(db)
    })?;
    same(sum, vec![11]);
    Ok(())
}

fn scripts(db: &mut Connection) -> RedisResult<()> {
    let script = Script::new("return redis.call('incrby', KEYS[1], ARGV[1])");
    same(script.key("sc").arg(5).invoke(db)?, 5);
    same(script.key("sc").arg(5).invoke(db)?, 10);
    let code = "#!lua name=rustlib\nredis.register_function('hi', function() return 'hi' end)";
    same(cmd("FUNCTION").arg(&["LOAD", "REPLACE", code]).query(db)?, "rustlib".to_owned());
    same(cmd("FCALL").arg("hi").arg(0).query(db)?, "hi".to_owned());
    let error = cmd("FCALL").arg("nosuch").arg(0).query::<Value>(db).unwrap_err();
    same(error.to_string().contains("Function not found"), true);
    let error = cmd("EVALSHA").arg("0".repeat(40)).arg(0).query::<Value>(db).unwrap_err();
    same(error.kind(), ErrorKind::Server(redis::ServerErrorKind::NoScript));
    Ok(())
}

fn messages(db: &mut Connection, client: &Client) -> RedisResult<()> {
    let mut connection = client.get_connection()?;
    let mut listener = connection.as_pubsub();
    listener.subscribe("news")?;
    listener.psubscribe("n*")?;
    same(db.publish("news", "hello")?, 2);
    for pattern in [false, true] {
        let message = listener.get_message()?;
        same(message.get_payload::<String>()?, "hello".into());
        same(message.from_pattern(), pattern);
    }
    Ok(())
}

fn blocking(db: &mut Connection, client: &Client) -> RedisResult<()> {
    let mut other = client.get_connection()?;
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        other.rpush::<_, _, i64>("queue", "job")
    });
    same(db.blpop(&["none", "queue"], 5.0)?, ("queue".to_owned(), "job".to_owned()));
    same(db.blpop("none", 0.1)?, None::<(String, String)>);
    same(later.join().unwrap()?, 1);
    Ok(())
}

fn invalidations(client: &Client) -> RedisResult<()> {
    let (mut db, mut other) = (client.get_connection()?, client.get_connection()?);
    let (told, pushes) = mpsc::channel();
    db.set_push_sender(told);
    cmd("CLIENT").arg(&["TRACKING", "ON"]).exec(&mut db)?;
    db.set::<_, _, ()>("cached", 1)?;
    same(db.get("cached")?, 1);
    other.set::<_, _, ()>("cached", 2)?;
    same(db.get("cached")?, 2);
    let push = pushes.try_recv().expect("an invalidation, sent before the new value");
    same(push.kind, PushKind::Invalidate);
    same(Vec::<Vec<String>>::from_redis_value(Value::Array(push.data))?, vec![vec!["cached".to_owned()]]);
    Ok(())
}

async fn asynchronous(client: Client) -> RedisResult<()> {
    let db = ConnectionManager::new(client.clone()).await?;
    let increments = (0..100).map(|_| {
        let mut db = db.clone();
        async move { cmd("INCR").arg("async").query_async::<i64>(&mut db).await }
    });
    let mut got = futures_util::future::try_join_all(increments).await?;
    got.sort();
    same(got, (1..=100).collect());
    let mut listener = client.get_async_pubsub().await?;
    listener.subscribe("news").await?;
    cmd("PUBLISH").arg(&["news", "x"]).exec_async(&mut db.clone()).await?;
    same(listener.on_message().next().await.unwrap().get_payload::<String>()?, "x".into());
    Ok(())
}

fn file(name: &str) -> Vec<u8> {
    fs::read(env::var(name).unwrap()).unwrap()
}

fn all(client: &Client) -> RedisResult<()> {
    let db = &mut client.get_connection()?;
    types(db)?;
    streams(db)?;
    transactions(db, client)?;
    scripts(db)?;
    messages(db, client)?;
    blocking(db, client)
}

fn main() -> RedisResult<()> {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let port = env::var("SERVER_PORT").unwrap();
    let resp2 = Client::open(format!("redis://localhost:{port}?protocol=resp2"))?;
    let resp3 = Client::open(format!("redis://localhost:{port}?protocol=resp3"))?;
    let address: ConnectionInfo =
        format!("rediss://localhost:{}", env::var("SERVER_TLS_PORT").unwrap()).into_connection_info()?;
    let client_tls = Some(ClientTlsConfig { client_cert: file("TLS_CERT"), client_key: file("TLS_KEY") });
    let tls =
        Client::build_with_tls(address, TlsCertificates { client_tls, root_cert: Some(file("TLS_CA")) })?;
    for client in [&resp2, &resp3, &tls] {
        all(client)?;
    }
    invalidations(&resp3)?;
    tokio::runtime::Runtime::new()?.block_on(asynchronous(resp3))
}
