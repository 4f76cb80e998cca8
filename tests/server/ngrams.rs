//! The commands of n-grams: replies, errors that change nothing, and that counts are fields of a hash.

use crate::harness::{Server, is_error, show};

#[test]
fn the_examples_of_the_documentation_are_true() {
    let server = Server::start(&[]);
    let page = include_str!("../../docs/domain.md");
    // An example is a line that is indented like code.
    let examples: Vec<_> = page.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(examples.len() >= 8, "{examples:?}");
    server.client().run_script(&examples.join("\n"));
}

#[test]
fn n_grams_are_counted() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ngram.incr n a => [:1]
         ngram.incr n a b a => [:2 :1 :3]
         ngram.incrby n a 10 c -4 a -1 => [:13 :-4 :12]
         ngram.get n a b c none a => [:12 :1 :-4 :0 :12]
         ngram.get none a => [:0]
         exists none => :0
         ngram.incr n => -ERR wrong number of arguments for 'ngram.incr' command
         ngram.incrby n a => -ERR wrong number of arguments for 'ngram.incrby' command
         ngram.incrby n a 1 b => -ERR wrong number of arguments for 'ngram.incrby' command
         ngram.get n => -ERR wrong number of arguments for 'ngram.get' command",
    );
}

#[test]
fn an_error_changes_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "hset n a 5 full 9223372036854775807 least -9223372036854775808 word x => :4
         set s 1 => +OK
         ngram.incrby n a 1 b x => -ERR value is not an integer or out of range
         ngram.incrby n a 1 b 9223372036854775808 => -ERR value is not an integer or out of range
         ngram.incr n a new full => -ERR increment or decrement would overflow
         ngram.incrby n a 1 least -1 => -ERR increment or decrement would overflow
         ngram.incrby n a 9223372036854775800 a 3 => -ERR increment or decrement would overflow
         ngram.incr n a new word => -ERR hash value is not an integer
         ngram.get n a word => -ERR hash value is not an integer
         ngram.incr s a => -WRONGTYPE Operation against a key holding the wrong kind of value
         ngram.incrby s a 1 => -WRONGTYPE Operation against a key holding the wrong kind of value
         ngram.get s a => -WRONGTYPE Operation against a key holding the wrong kind of value
         ngram.incrby none a x => -ERR value is not an integer or out of range
         exists none => :0
         hgetall n => [a 5 full 9223372036854775807 least -9223372036854775808 word x]",
    );
}

#[test]
fn counts_are_fields_of_a_hash() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ngram.incr n a b a => [:1 :1 :2]
         hset h a 2 b 1 => :2
         type n => +hash
         hgetall n => [a 2 b 1]
         hincrby n a 5 => :7
         ngram.get n a => [:7]
         hdel n a => :1
         ngram.get n a b => [:0 :1]
         hset n a 2 => :1
         hset h a 2 => :0
         hexpire n 1000 fields 1 a => [:1]
         ngram.incr n a => [:3]
         hpersist n fields 1 a => [:1]",
    );
    client.run_script("del n => :1\n ngram.incr n a b a => [:1 :1 :2]");
    assert_eq!(client.call("dump n"), client.call("dump h"));
}

#[test]
fn access_follows_the_hash_commands() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert!(show(&client.call("acl cat hash")).contains("ngram.incrby"));
    client.run_script(
        "acl setuser reader on nopass ~n* +@hash -@write => +OK
         auth reader x => +OK
         ngram.get n a => [:0]",
    );
    for refused in ["ngram.incr n a", "ngram.incrby n a 1", "ngram.get other a"] {
        assert!(is_error(&client.call(refused), "NOPERM"), "{refused}");
    }
}

#[test]
fn many_n_grams_are_counted_in_one_call_and_survive_kill_9() {
    const NGRAMS: usize = 50_000;
    let server = Server::start(&["--appendfsync", "always"]);
    let mut incr = vec!["ngram.incr".to_owned(), "n".to_owned()];
    incr.extend((0..NGRAMS).map(|number| (number % (NGRAMS / 2)).to_string()));
    let mut client = server.client();
    client.call_args(&incr);
    let server = server.restart(Server::kill);
    let mut client = server.client();
    client.run_script(&format!("hlen n => :{}\n ngram.get n 0 24999 25000 => [:2 :2 :0]", NGRAMS / 2));
}
