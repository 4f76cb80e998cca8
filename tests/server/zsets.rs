//! The commands of sorted sets: replies in both protocols, errors and their order, waiting for members.

use crate::harness::{Server, show};
use holdfast_resp::Reply;

#[test]
fn members_and_scores() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "zadd z 1 a 2 b 3 c => :3
         zadd z nx 9 a 4 d => :1
         zadd z xx ch 1.5 a 9 none => :1
         zadd z gt ch 1 b 5 c => :1
         zadd z lt incr -1 b => 1
         zadd z gt incr -1 b => nil
         zadd none xx incr 1 a => nil
         zincrby z 0.5 a => 2
         zscore z a => 2
         zscore z none => nil
         zmscore z a none c => [2 nil 5]
         zmscore none a => [nil]
         zcard z => :4
         zrank z a => :1
         zrank z a withscore => [:1 2]
         zrevrank z a => :2
         zrank z none withscore => nil
         zrandmember z 9 => [b a d c]
         zrandmember none => nil
         zrandmember none 5 => []
         zscan z 0 match [ab] => [0 [b 1 a 2]]
         zscan z 0 count 5 noscores => [0 [b a d c]]
         zscan z 0 novalues => -ERR NOVALUES option can only be used in HSCAN
         zscan none 0 => [0 []]
         zrem z a none => :1
         zpopmin z => [b 1]
         zpopmax z 5 => [c 5 d 4]
         zpopmin z => []
         zcard z => :0
         zadd z 1.25 a -inf b => :2",
    );
    client.call("hello 3");
    client.run_script(
        "zscore z a => ,1.25
         zrange z 0 -1 withscores => [[b ,-inf] [a ,1.25]]
         zrange z 0 -1 => [b a]
         zrank z a withscore => [:1 ,1.25]
         zrandmember z 5 withscores => [[b ,-inf] [a ,1.25]]
         zscan z 0 => [0 [b -inf a 1.25]]
         zpopmax z => [a ,1.25]
         zpopmax z 1 => [[b ,-inf]]
         zrank z b withscore => nil",
    );
}

#[test]
fn ranges() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("zadd z 1 a 2 b");
    for start in [" 1", "( 1"] {
        // As for C, spaces before a number are nothing, those behind it are.
        assert_eq!(client.call_args(&["zcount", "z", start, "2"]), Reply::Int(2 - start.len() as i64 / 3));
        let error = client.call_args(&["zcount", "z", &format!("{start} "), "2"]);
        assert_eq!(show(&error), "-ERR min or max is not a float");
    }
    client.run_script(
        "zadd z 3 c 4 d 5 e => :3
         zrange z 1 2 => [b c]
         zrange z 0 0 rev withscores => [e 5]
         zrange z 0 0 rev rev => -ERR syntax error
         zrevrange z 0 1 => [e d]
         zrange z (1 3 byscore => [b c]
         zrange z 4 -inf byscore rev limit 1 2 => [c b]
         zrangebyscore z 2 +inf withscores limit 1 1 => [c 3]
         zrangebyscore z 2 +inf limit -1 1 => []
         zrangebyscore z 2 +inf limit 2 -1 => [d e]
         zrevrangebyscore z 3 (1 => [c b]
         zcount z (1 4 => :3
         zcount none 1 2 => :0
         zrangestore to z 0 2 rev => :3
         zrange to 0 -1 => [c d e]
         zrangestore to none 0 1 => :0
         zcard to => :0
         zremrangebyrank z 0 0 => :1
         zremrangebyscore z (2 3 => :1
         zrange z 0 -1 withscores => [b 2 d 4 e 5]
         zadd n 0 a 0 b 0 c 0 d => :4
         zrange n [b (d bylex => [b c]
         zrange n + - bylex rev limit 1 2 => [c b]
         zrangebylex n - + limit 3 5 => [d]
         zrangebylex n + - => []
         zrevrangebylex n [c (a => [c b]
         zlexcount n (a [c => :2
         zremrangebylex n [b [c => :2
         zrange n 0 -1 => [a d]
         zrange z 0 1 limit 0 1 => -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
         zrange n - + bylex withscores => -ERR syntax error, WITHSCORES not supported in combination with BYLEX
         zrange z a b byscore => -ERR min or max is not a float
         zrange z a b bylex => -ERR min or max not valid string range item
         zrangebyscore z 1 2 rev => -ERR syntax error
         zrange z a b => -ERR value is not an integer or out of range",
    );
}

#[test]
fn sorted_sets_are_combined() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "zadd a 1 x 2 y 3 z => :3
         zadd b 10 y 20 z 30 w => :3
         sadd s x q => :2
         zunion 2 a b withscores => [x 1 y 12 z 23 w 30]
         zunion 2 a s weights 2 5 aggregate max withscores => [y 4 q 5 x 5 z 6]
         zinter 2 a b withscores => [y 12 z 23]
         zinter 2 a none => []
         zdiff 2 a b withscores => [x 1]
         zdiff 2 s a withscores => [q 1]
         zintercard 2 a b => :2
         zintercard 2 a b limit 1 => :1
         zunionstore a 2 a b => :4
         zrange a 0 -1 withscores => [x 1 y 12 z 23 w 30]
         zinterstore to 2 a b aggregate min => :3
         zrange to 0 -1 withscores => [y 10 z 20 w 30]
         zdiffstore to 2 a a => :0
         zcard to => :0
         zunion 0 a => -ERR at least 1 input key is needed for 'zunion' command
         zunion 3 a b => -ERR syntax error
         zunion 1 a weights x => -ERR weight value is not a float
         zdiff 1 a weights 1 => -ERR syntax error
         zunionstore to 1 a withscores => -ERR syntax error
         zintercard 1 a limit -1 => -ERR LIMIT can't be negative
         set string x => +OK
         zunion 2 a string nonsense => -WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}

#[test]
fn errors_change_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "set string x => +OK
         zadd z inf a => :1
         zadd z 1 a 2 => -ERR syntax error
         zadd z nx xx 1 a => -ERR XX and NX options at the same time are not compatible
         zadd z gt nx 1 a => -ERR GT, LT, and/or NX options at the same time are not compatible
         zadd z incr 1 a 2 b => -ERR INCR option supports a single increment-element pair
         zadd z 1 b nan a => -ERR value is not a valid float
         zadd string x a => -ERR value is not a valid float
         zincrby z -inf a => -ERR resulting score is not a number (NaN)
         zrank z a nonsense => -ERR syntax error
         zrank z a withscore more => -ERR wrong number of arguments for 'zrank' command
         zpopmin z -1 => -ERR value is out of range, must be positive
         zmpop 1 z left => -ERR syntax error
         zmpop 0 z min => -ERR numkeys should be greater than 0
         zrandmember z 1 nonsense => -ERR syntax error
         zscan z x => -ERR invalid cursor
         zrange z 0 -1 withscores => [a inf]",
    );
    for command in
        ["zadd string 1 a", "zscore string a", "zrangestore z string 0 1", "bzpopmin none string 0"]
    {
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(show(&client.call(command)), wrong_type, "{command}");
    }
}

#[test]
fn each_waiting_command_is_served() {
    let server = Server::start(&[]);
    let (mut waiting, mut other) = (server.client(), server.client());
    for (command, reply) in [
        ("bzpopmin none z 0", "[z a 1]"),
        ("bzpopmax z none 0", "[z b 2]"),
        ("bzmpop 0 2 none z min count 5", "[z [[a 1] [b 2]]]"),
    ] {
        waiting.send(format!("{command}\r\n").as_bytes());
        assert!(waiting.is_silent(), "{command}");
        other.run_script("zadd z 1 a 2 b => :2");
        assert_eq!(show(&waiting.reply()), reply, "{command}");
        other.call("del z");
    }
    other.run_script(
        "bzpopmin none 0.01 => nil
         zadd z 1 a => :1
         zmpop 2 none z max count 3 => [z [[a 1]]]
         zmpop 1 z max => nil
         multi => +OK
         bzpopmax z 0 => +QUEUED
         bzmpop 0 1 z min => +QUEUED
         exec => [nil nil]",
    );
}
