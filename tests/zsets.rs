//! Sorted sets: replies in both protocols, errors, waiting for members.

mod harness;

use harness::{Client, Server, array, bulk, bulks, error};
use holdfast_resp::Reply::{self, Double, Int, Null};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn none() -> Reply {
    bulks::<&str>([])
}

fn calls<const N: usize>(client: &mut Client, calls: [(&str, Reply); N]) {
    for (command, reply) in calls {
        assert_eq!(client.call(command), reply, "{command}");
    }
}

#[test]
fn members_and_scores() {
    let server = Server::start(&[]);
    let client = &mut server.client();
    calls(
        client,
        [
            ("zadd z 1 a 2 b 3 c", Int(3)),
            ("zadd z nx 9 a 4 d", Int(1)),
            ("zadd z xx ch 1.5 a 9 none", Int(1)),
            ("zadd z gt ch 1 b 5 c", Int(1)),
            ("zadd z lt incr -1 b", bulk("1")),
            ("zadd z gt incr -1 b", Null),
            ("zadd none xx incr 1 a", Null),
            ("zincrby z 0.5 a", bulk("2")),
            ("zscore z a", bulk("2")),
            ("zscore z none", Null),
            ("zmscore z a none c", array([bulk("2"), Null, bulk("5")])),
            ("zmscore none a", array([Null])),
            ("zcard z", Int(4)),
            ("zrank z a", Int(1)),
            ("zrank z a withscore", array([Int(1), bulk("2")])),
            ("zrevrank z a", Int(2)),
            ("zrank z none withscore", Null),
            ("zrandmember z 9", bulks(["b", "a", "d", "c"])),
            ("zrandmember none", Null),
            ("zrandmember none 5", none()),
            ("zscan z 0 match [ab]", array([bulk("0"), bulks(["b", "1", "a", "2"])])),
            ("zscan none 0", array([bulk("0"), none()])),
            ("zrem z a none", Int(1)),
            ("zpopmin z", bulks(["b", "1"])),
            ("zpopmax z 5", bulks(["c", "5", "d", "4"])),
            ("zpopmin z", none()),
            ("zcard z", Int(0)),
        ],
    );
    client.call("zadd z 1.25 a -inf b");
    let Reply::Array(drawn) = client.call("zrandmember z -5 withscores") else { panic!("an array") };
    assert_eq!(drawn.len(), 10);
    client.call("hello 3");
    let scored = |member: &str, score| array([bulk(member), Double(score)]);
    calls(
        client,
        [
            ("zscore z a", Double(1.25)),
            ("zrange z 0 -1 withscores", array([scored("b", f64::NEG_INFINITY), scored("a", 1.25)])),
            ("zrank z a withscore", array([Int(1), Double(1.25)])),
            ("zrandmember z 1 withscores", client_reply(&drawn)),
            ("zpopmax z", scored("a", 1.25)),
            ("zpopmax z 1", array([scored("b", f64::NEG_INFINITY)])),
        ]
        .map(|(command, reply)| (command, reply))
        .into_iter()
        .filter(|(command, _)| !command.starts_with("zrandmember"))
        .collect::<Vec<_>>()
        .try_into()
        .expect("five calls"),
    );
}
