//! Access control: who may log in and do what, how rules are written, and where users are kept.

use crate::harness::{
    Client, Folder, Server, array, bulk, bulks, error, is_error, ok, run, show, text, wait_until,
};
use holdfast_resp::Reply;
use std::{fs, os::unix::fs::PermissionsExt};

const NOPERM_KEY: &str = "-NOPERM No permissions to access a key";

/// A client that is logged in as a user that it has made.
fn user(server: &Server, name: &str, rules: &str) -> Client {
    assert_eq!(server.client().call(&format!("acl setuser {name} {rules}")), ok());
    let mut client = server.client();
    assert_eq!(client.call(&format!("auth {name} any")), ok());
    client
}

#[test]
fn users_are_made_shown_and_deleted() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "acl whoami => default
         acl users => [default]
         acl list => [user default on nopass sanitize-payload ~* &* +@all]
         acl setuser alice => +OK
         acl list => [user alice off sanitize-payload resetchannels -@all user default on nopass sanitize-payload ~* &* +@all]
         auth alice x => -WRONGPASS invalid username-password pair or user is disabled.
         acl setuser alice on >secret +@read -@SLOW ~a* %R~r &chan (~b +set) => +OK
         acl getuser alice => [flags [on sanitize-payload] passwords \
         [2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b] commands -@all +@read -@slow keys ~a* %R~r \
         channels &chan selectors [[commands -@all +set keys ~b channels ]]]
         acl getuser nobody => nil
         acl setuser alice +nope => -ERR Error in ACL SETUSER modifier '+nope': Unknown command or category name in ACL
         acl setuser alice (~x => -ERR Unmatched parenthesis in acl selector starting at '(~x'.
         acl setuser alice off nonsense => -ERR Error in ACL SETUSER modifier 'nonsense': Syntax error
         auth alice secret => +OK
         acl whoami => -NOPERM User alice has no permissions to run the 'acl|whoami' command
         auth default any => +OK
         acl deluser default => -ERR The 'default' user cannot be removed
         acl deluser alice nobody => :1
         acl users => [default]
         auth alice secret => -WRONGPASS invalid username-password pair or user is disabled.
         acl nope => -ERR unknown subcommand 'nope'. Try ACL HELP.
         acl help x => -ERR wrong number of arguments for 'acl|help' command
         acl cat nope => -ERR Unknown category 'nope'
         acl save => -ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL \
         SETUSER command and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store \
         users in the configuration.",
    );
    assert_eq!(
        client.call_args(&["acl", "setuser", "a b"]),
        error("ERR Usernames can't contain spaces or null characters")
    );
    let categories = client.call("acl cat");
    assert!(matches!(&categories, Reply::Array(names) if names.len() == 21 && names[0] == bulk("keyspace")));
    let Reply::Array(hashes) = client.call("acl cat hash") else { panic!("names") };
    assert!(hashes.contains(&bulk("hget")) && !hashes.contains(&bulk("get")));
    assert!(matches!(client.call("hello 3 auth default x"), Reply::Map(_)));
    assert!(matches!(client.call("acl getuser default"), Reply::Map(pairs) if pairs.len() == 6));
}

#[test]
fn passwords_are_generated_at_random() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (command, digits) in [("acl genpass", 64), ("acl genpass 5", 2), ("acl genpass 4096", 1024)] {
        let (one, two) = (text(&client.call(command)), text(&client.call(command)));
        assert_eq!(one.len(), digits);
        assert!(digits < 64 || one != two);
    }
    let range = "ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";
    for command in ["acl genpass 0", "acl genpass 4097", "acl genpass -1"] {
        assert_eq!(client.call(command), error(&format!("ERR {range}")));
    }
}

#[test]
fn commands_keys_and_transactions_are_checked() {
    let server = Server::start(&[]);
    let mut alice = user(&server, "alice", "on nopass +@all -flushall -client|kill ~a* %R~r* %W~w*");
    alice.run_script(&format!(
        "set a1 v => +OK
         set x v => {NOPERM_KEY}
         get r1 => nil
         set r1 v => {NOPERM_KEY}
         set w1 v => +OK
         set w1 v get => {NOPERM_KEY}
         get w1 => {NOPERM_KEY}
         exists w1 r1 a1 => :2
         exists w1 x => {NOPERM_KEY}
         copy r1 w1 => :0
         copy w1 r1 => {NOPERM_KEY}
         mset a1 1 a2 2 x 3 => {NOPERM_KEY}
         zunionstore a3 2 r1 r2 => :0
         zunionstore a3 2 r1 x => {NOPERM_KEY}
         blpop x 0 => {NOPERM_KEY}
         flushall => -NOPERM User alice has no permissions to run the 'flushall' command
         client kill a:1 => -NOPERM User alice has no permissions to run the 'client|kill' command
         client getname => nil
         multi => +OK
         set x 1 => {NOPERM_KEY}
         exec => -EXECABORT Transaction discarded because of previous errors.
         multi => +OK
         set a1 again => +QUEUED
         flushdb => +QUEUED"
    ));
    assert_eq!(server.client().call("acl setuser alice -flushdb"), ok());
    alice.run_script(
        "exec => [+OK -NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
         command is no longer allowed for the following reason: no permission to execute the command or subcommand]
         get a1 => again",
    );
    let mut admin = server.client();
    admin.run_script(
        "acl dryrun alice get a1 => +OK
         acl dryrun alice get x => User alice has no permissions to access the 'x' key
         acl dryrun alice flushall => User alice has no permissions to run the 'flushall' command
         acl dryrun alice get => -ERR wrong number of arguments for 'get' command
         acl dryrun alice nope => -ERR Command 'nope' not found
         acl dryrun nobody get a => -ERR User 'nobody' not found",
    );
}

#[test]
fn rules_change_for_those_who_are_connected() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    let mut bob = user(&server, "bob", "on nopass +@all allkeys");
    assert_eq!(bob.call("incr n"), Reply::Int(1));
    bob.send(b"BLPOP list 0\r\n");
    wait_until(|| "it waits".into(), || admin.info("blocked_clients") == "1");
    assert_eq!(admin.call("acl setuser bob resetkeys"), ok());
    assert_eq!(admin.call("rpush list a"), Reply::Int(1));
    assert_eq!(show(&bob.reply()), NOPERM_KEY);
    assert_eq!(show(&bob.call("incr n")), NOPERM_KEY);
    assert_eq!(admin.call("lpop list"), bulk("a"));
    // Who is disabled stays connected; who is deleted does not.
    assert_eq!(admin.call("acl setuser bob off"), ok());
    assert_eq!(bob.call("ping"), Reply::Simple(b"PONG".to_vec()));
    assert!(text(&admin.call("client list")).contains(" user=bob "));
    assert_eq!(admin.call("acl deluser bob"), Reply::Int(1));
    assert_eq!(bob.try_call("PING").filter(|reply| !is_error(reply, "NOPERM")), None);
    // Who deletes itself is told so first.
    let mut carol = user(&server, "carol", "on nopass +acl");
    assert_eq!(carol.call("acl deluser carol"), Reply::Int(1));
    assert_eq!(carol.try_reply(), None);
    let mut dave = user(&server, "dave", "on nopass +@all");
    assert_eq!(admin.call("client kill user nobody"), error("ERR No such user 'nobody'"));
    assert_eq!(admin.call("client kill user dave"), Reply::Int(1));
    assert_eq!(dave.try_reply(), None);
}

#[test]
fn refusals_are_logged_and_counted() {
    let server = Server::start(&["--acllog-max-len", "3"]);
    let mut eve = user(&server, "eve", "on nopass +get ~a");
    let mut admin = server.client();
    for command in ["set a 1", "get b", "get b", "auth eve2 x"] {
        assert!(matches!(eve.call(command), Reply::Error(_)), "{command}");
    }
    assert_eq!(admin.call("acl setuser eve +multi"), ok());
    eve.run_script("multi => +OK\nget b => -NOPERM No permissions to access a key");
    let entry = |reply: &Reply| match reply {
        Reply::Map(pairs) => pairs.clone(),
        _ => panic!("a map"),
    };
    assert!(matches!(admin.call("hello 3"), Reply::Map(_)));
    let Reply::Array(entries) = admin.call("acl log") else { panic!("entries") };
    let fields = |nth: usize| {
        let pairs = entry(&entries[nth]);
        pairs[..5].iter().map(|(_, value)| show(value)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(entries.len(), 3);
    assert_eq!(fields(0), ":1 key multi b eve");
    assert_eq!(fields(1), ":1 auth toplevel auth eve2");
    assert_eq!(fields(2), ":2 key toplevel b eve");
    let names: Vec<String> = entry(&entries[0]).iter().map(|(name, _)| show(name)).collect();
    assert_eq!(
        names.join(" "),
        "count reason context object username age-seconds client-info entry-id timestamp-created timestamp-last-updated"
    );
    assert!(show(&entry(&entries[0])[6].1).contains("cmd=get user=eve"));
    assert!(matches!(admin.call("acl log 1"), Reply::Array(entries) if entries.len() == 1));
    assert_eq!(admin.info("acl_access_denied_key"), "3");
    assert_eq!(admin.info("acl_access_denied_cmd"), "1");
    assert_eq!(admin.info("acl_access_denied_auth"), "1");
    assert_eq!(admin.call("acl log reset"), ok());
    assert_eq!(admin.call("acl log"), array([]));
}

#[test]
fn the_default_user_has_the_password_of_requirepass() {
    let server = Server::start(&["--requirepass", "one"]);
    let mut client = server.client();
    client.run_script(
        "ping => -NOAUTH Authentication required.
         auth one => +OK
         config set requirepass two => +OK
         acl setuser default >three => +OK",
    );
    for (password, works) in [("one", false), ("two", true), ("three", true)] {
        assert_eq!(server.client().call(&format!("auth {password}")) == ok(), works, "{password}");
    }
    let mut early = server.client();
    assert!(is_error(&early.call("ping"), "NOAUTH"));
    assert_eq!(client.call_args(&["config", "set", "requirepass", ""]), ok());
    assert_eq!(early.call("ping"), Reply::Simple(b"PONG".to_vec()));
    assert!(is_error(&early.call("auth one"), "ERR AUTH <password> called without any password configured"));
    // While the default user is off, others can still log in.
    client.run_script("acl setuser other on >x +@all => +OK\nacl setuser default off => +OK");
    let mut late = server.client();
    assert!(is_error(&late.call("ping"), "NOAUTH"));
    assert!(matches!(late.call("hello 2 auth other x"), Reply::Array(_)));
    assert_eq!(late.call("acl whoami"), bulk("other"));
}

#[test]
fn what_is_refused_leaves_the_default_user_its_passwords() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let (_other, port) = Server::start_with_port(&[]);
    client.run_script("acl setuser default resetpass >given => +OK");
    for refused in ["requirepass asked maxmemory much", &format!("requirepass asked port {port}")] {
        let reply = client.call(&format!("config set {refused}"));
        assert!(is_error(&reply, "ERR CONFIG SET failed"), "{refused}: {reply:?}");
        assert!(is_error(&server.client().call("ping"), "NOAUTH"), "{refused}");
        assert_eq!(server.client().call("auth given"), ok(), "{refused}");
        assert_eq!(show(&client.call("config get requirepass")), "[requirepass ]");
    }
    assert_eq!(client.call("config set requirepass asked maxmemory 0"), ok());
    assert_eq!(server.client().call("auth asked"), ok());
}

#[test]
fn passwords_are_not_shown() {
    let server = Server::start(&["--slowlog-log-slower-than", "0"]);
    let mut client = server.client();
    for command in
        ["acl setuser u >hidden", "auth u hidden", "hello 3 auth u hidden", "config set requirepass hidden"]
    {
        client.call(command);
    }
    let shown = show(&client.call("slowlog get 100"));
    assert!(shown.contains("acl setuser (redacted) (redacted)"), "{shown}");
    assert!(shown.contains("auth (redacted) (redacted)"), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
    assert!(!server.log().contains("hidden"), "{}", server.log());
}

#[test]
fn users_are_kept_in_a_file() {
    let folder = Folder::new();
    fs::create_dir(folder.join("data")).unwrap();
    let path = folder.join("data/users.acl");
    fs::write(&path, "user alice on >a +@all ~*\n\n  user default on nopass +@all ~* &*\n").unwrap();
    let server = Server::start_in(folder, &["--aclfile", "users.acl"]);
    let mut admin = server.client();
    let mut alice = server.client();
    assert_eq!(alice.call("auth alice a"), ok());
    let mut bob = user(&server, "bob", "on nopass +@all (~x +get)");
    assert_eq!(admin.call("acl save"), ok());
    let saved = fs::read_to_string(&path).unwrap();
    assert!(
        saved.contains(
            "user bob on nopass sanitize-payload resetchannels +@all (~x resetchannels -@all +get)\n"
        )
    );
    assert_eq!(admin.call("acl load"), ok());
    assert_eq!(bob.call("ping"), Reply::Simple(b"PONG".to_vec()));

    fs::write(&path, "user alice on >a +get ~*\nuser default on nopass +@all ~* &*\n").unwrap();
    assert_eq!(admin.call("acl load"), ok());
    assert!(is_error(&alice.call("set a 1"), "NOPERM"));
    assert_eq!(bob.try_call("PING").filter(|reply| !is_error(reply, "NOPERM")), None);

    // A file with mistakes changes nothing.
    fs::write(&path, "user alice +nope\nuser alice on\nnobody\nuser x #12 #34 (a\n").unwrap();
    let reply = admin.call("acl load");
    let mistakes = show(&reply);
    assert!(
        mistakes.contains("users.acl:1: Error in applying operation '+nope': Unknown command"),
        "{mistakes}"
    );
    assert!(mistakes.contains("WARNING: Duplicate user 'alice' found on line 2. "), "{mistakes}");
    assert!(
        mistakes.contains("users.acl:3 should start with user keyword followed by the username. "),
        "{mistakes}"
    );
    assert!(mistakes.contains("users.acl:4: Unmatched parenthesis in selector definition."), "{mistakes}");
    assert!(mistakes.ends_with("no change to the previously active ACL rules was performed"), "{mistakes}");
    assert_eq!(admin.call("acl users"), bulks(["alice", "default"]));
    let folder = server.stop();
    let (socket, data) = (folder.join("socket"), folder.join("data"));
    let output =
        run(&["serve", "--port", "0", "--unixsocket", &socket, "--dir", &data, "--aclfile", "users.acl"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("ACL errors detected"));
}

#[test]
fn users_are_kept_in_the_configuration_file() {
    let folder = Folder::new();
    let path = folder.join("conf");
    fs::write(&path, "# users\nuser alice on >a +get ~a*\nuser bob off \"(~x  +get)\"\nport 0\n").unwrap();
    let server = Server::start_in(folder, &[&path]);
    let mut client = server.client();
    client.run_script(
        "acl users => [alice bob default]
         acl setuser carol on nopass +get => +OK
         acl deluser bob => :1
         config rewrite => +OK",
    );
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.starts_with("# users\nuser alice on sanitize-payload #ca978112ca1b"), "{written}");
    assert!(
        written.contains("\nuser carol on nopass sanitize-payload resetchannels -@all +get\nport 0\n"),
        "{written}"
    );
    assert!(!written.contains("bob"), "{written}");
    let list = client.call("acl list");
    let server = server.restart(Server::stop);
    assert_eq!(server.client().call("acl list"), list);
}

#[test]
fn channels_are_checked_and_subscribers_lose_what_they_may_not_use() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    let mut fan = user(&server, "fan", "on nopass +@all ~* &news:* &p*");
    fan.run_script(
        "publish news:1 a => :0
         publish other a => -NOPERM No permissions to access a channel
         spublish other a => -NOPERM No permissions to access a channel
         subscribe news:1 other => -NOPERM No permissions to access a channel
         psubscribe news:1 => -NOPERM No permissions to access a channel
         psubscribe p* => [psubscribe p* :1]
         subscribe news:1 => [subscribe news:1 :2]
         ssubscribe news:1 => [ssubscribe news:1 :1]",
    );
    assert_eq!(admin.call("acl setuser fan &more"), ok());
    assert_eq!(admin.call("publish news:1 a"), Reply::Int(1));
    assert_eq!(show(&fan.reply()), "[message news:1 a]");
    assert_eq!(admin.call("acl setuser fan allchannels"), ok());
    assert_eq!(admin.call("acl setuser fan resetchannels &news:*"), ok());
    assert!(!text(&admin.call("client list")).contains("user=fan"));
    assert_eq!(fan.try_reply(), None);
}

#[test]
fn a_password_that_an_acl_file_voids_is_not_void_silently() {
    let start = |users: &str| {
        let folder = Folder::new();
        fs::create_dir(folder.join("data")).unwrap();
        fs::write(folder.join("data/users.acl"), users).unwrap();
        let (data, socket) = (folder.join("data"), folder.join("s"));
        let args = ["serve", "--port", "0", "--unixsocket", &socket, "--dir", &data];
        (run(&[&args[..], &["--aclfile", "users.acl", "--requirepass", "secret"]].concat()), folder)
    };
    for users in ["", "user alice on >pass ~* +@all\n", "user default on nopass ~* +@all\n"] {
        let (output, _folder) = start(users);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("'requirepass' has no effect beside 'aclfile'"), "{text}");
    }
    let folder = Folder::new();
    fs::create_dir(folder.join("data")).unwrap();
    fs::write(folder.join("data/users.acl"), "user default on >other ~* &* +@all\n").unwrap();
    let server = Server::start_in(folder, &["--aclfile", "users.acl", "--requirepass", "secret"]);
    assert!(server.log().contains("option 'requirepass' has no effect: the users are those of the ACL file"));
    assert!(is_error(&server.client().call("auth secret"), "WRONGPASS"));
    let mut client = server.client();
    assert_eq!(client.call("auth other"), ok());
    // Rewritten, it keeps its rights.
    let file = server.folder().join("data/users.acl");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(client.call("acl save"), ok());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}
