//! SORT and SORT_RO.

use crate::harness::{Server, show};

#[test]
fn elements_are_sorted() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "rpush l 10 2 -1 2.5 1e2 => :5
         sort l => [-1 2 2.5 10 1e2]
         sort l desc => [1e2 10 2.5 2 -1]
         sort l alpha => [-1 10 1e2 2 2.5]
         sort l limit 1 2 => [2 2.5]
         sort l limit -5 2 => [-1 2]
         sort l limit 3 -1 desc asc => [10 1e2]
         sort l limit 9 1 => []
         sort l limit 0 0 => []
         sort_ro l desc limit 0 1 => [1e2]
         sadd s 3 1 2 => :3
         sort s desc => [3 2 1]
         zadd z 1 c 2 b 3 a => :3
         sort z alpha => [a b c]
         sort z by nosort => [c b a]
         sort z by nosort desc limit 0 2 => [a b]
         sort l by nosort => [10 2 -1 2.5 1e2]
         sort l by nosort desc limit 1 2 => [2.5 -1]
         sort none => []
         rpush words x 1 => :2
         sort words => -ERR One or more scores can't be converted into double
         sort words alpha => [1 x]
         set text v => +OK
         sort text => -WRONGTYPE Operation against a key holding the wrong kind of value
         sort l limit 1 => -ERR syntax error
         sort l limit x 1 => -ERR value is not an integer or out of range
         sort l other => -ERR syntax error
         sort_ro l store to => -ERR syntax error",
    );
}

#[test]
fn patterns_lead_to_other_keys() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.client();
    client.run_script(
        "rpush l 1 2 3 4 => :4
         mset w_1 30 w_2 20 w_3 10 name_1_x one name_2_x two => +OK
         hset h_1 weight 5 name uno -> arrow => :3
         hset h_2 weight 7 => :1",
    );
    let script = "
        sort l by w_* => [4 3 2 1]
        sort l by w_* desc get # get name_*_x => [1 one 2 two 3 nil 4 nil]
        sort l by name_*_x alpha => [3 4 1 2]
        sort l by h_*->weight limit 2 2 get # get h_*->name => [1 uno 2 nil]
        sort l get h_*->-> limit 0 1 => [arrow]
        sort l get h_*-> get plain get h_* limit 0 1 => [nil nil nil]
        sort_ro l by w_* get name_*_x limit 2 1 => [two]
        sort l by w_* by none => [1 2 3 4]";
    client.run_script(script);
    // In a transaction, and with values that are not in memory.
    let server = server.restart(Server::stop);
    let mut client = server.client();
    client.run_script("multi => +OK");
    let calls = || script.lines().filter_map(|line| line.trim().split_once(" => "));
    calls().for_each(|(call, _)| assert_eq!(show(&client.call(call)), "+QUEUED"));
    let replies: Vec<&str> = calls().map(|(_, reply)| reply).collect();
    assert_eq!(show(&client.call("exec")), format!("[{}]", replies.join(" ")));
    let server = server.restart(Server::stop);
    server.client().run_script(script);
}

#[test]
fn results_are_stored() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "rpush l 3 1 2 => :3
         set to text => +OK
         expire to 100 => :1
         sort l store to => :3
         lrange to 0 -1 => [1 2 3]
         ttl to => :-1
         set w_1 x => +OK
         sort l get w_* get # store l => :6
         lrange l 0 -1 => [x 1  2  3]
         sadd s b c a => :3
         sort s by none desc store a store to => :3
         lrange to 0 -1 => [c b a]
         exists a => :0
         eval return(redis.call('sort','s','by','none','limit','0','2')) 0 => [a b]
         sort none store to => :0
         exists to => :0
         command getkeys sort k by store get x store a limit 0 1 store b => [k b]
         command getkeys sort_ro k by w_* => [k]",
    );
    let server = server.restart(Server::kill);
    server.client().run_script("lrange l 0 -1 => [x 1  2  3]");
}

#[test]
fn patterns_need_the_right_to_read_all_keys() {
    let server = Server::start(&[]);
    let (mut admin, mut client) = (server.client(), server.client());
    admin.run_script(
        "rpush l 2 1 => :2
         acl setuser user on >secret +@all ~l ~to => +OK",
    );
    client.run_script(
        "auth user secret => +OK
         sort l => [1 2]
         sort l by none store to => :2
         sort l store other => -NOPERM No permissions to access a key
         sort l by w_* => -ERR BY option of SORT denied due to insufficient ACL permissions.
         sort l get # => -ERR GET option of SORT denied due to insufficient ACL permissions.",
    );
    admin.run_script("acl setuser user %R~* => +OK");
    client.run_script("sort l by w_* get # => [1 2]");
}
