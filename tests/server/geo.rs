//! The commands of geospatial indexes.

use crate::harness::{Client, Server, show};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

fn sicily(client: &mut Client) {
    client.call("geoadd Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania");
    client.call("geoadd Sicily 12.758489 38.788135 edge1 17.241510 38.788135 edge2");
}

#[test]
fn positions_are_kept() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "geoadd s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania => :2
         geoadd s nx 1 2 Palermo 3 4 x => :1
         geoadd s xx ch 3 5 x 1 1 y => :1
         geoadd s ch 3 5 x => :0
         zscore s Palermo => 3479099956230698
         geodist s Palermo Catania => 166274.1516
         geodist s Palermo Catania km => 166.2742
         geodist s Palermo Catania MI => 103.3182
         geodist s Palermo Palermo ft => 0.0000
         geodist s Palermo none => nil
         geodist none a b => nil
         geodist s Palermo Catania x => -ERR unsupported unit provided. please use M, KM, FT, MI
         geodist s Palermo Catania km x => -ERR syntax error
         geohash s Palermo none Catania => [sqc8b49rny0 nil sqdtr74hyu0]
         geohash none a => [nil]
         geopos s Palermo none => [[13.36138933897018433 38.11555639549629859] nil]
         geopos none a => [nil]
         geoadd s 181 1 x => -ERR invalid longitude,latitude pair 181.000000,1.000000
         geoadd s 1 -86.5 x => -ERR invalid longitude,latitude pair 1.000000,-86.500000
         geoadd s x 1 x => -ERR value is not a valid float
         geoadd s nx xx 1 1 x => -ERR syntax error
         geoadd s 1 1 x 1 => -ERR syntax error
         geoadd s nx ch nx => -ERR syntax error
         zcard s => :3",
    );
    let server = server.restart(Server::kill);
    let mut client = server.client();
    client.call("hello 3");
    client.run_script(
        "geopos s Palermo none => [[,13.361389338970184 ,38.1155563954963] nil]
         geodist s Palermo Catania => 166274.1516
         georadius s 15 37 100 km withdist withcoord withhash => [[Catania 56.4413 :3479447370796909 [,15.087267458438873 ,37.50266842333162]]]",
    );
}

#[test]
fn areas_are_searched() {
    let server = Server::start(&[]);
    let mut client = server.client();
    sicily(&mut client);
    client.run_script(
        "geosearch Sicily fromlonlat 15 37 byradius 200 km asc => [Catania Palermo]
         geosearch Sicily fromlonlat 15 37 bybox 400 400 km asc withdist => [[Catania 56.4413] [Palermo 190.4424] [edge2 279.7403] [edge1 279.7405]]
         geosearch Sicily fromlonlat 15 37 bybox 400 300 km desc => [Palermo Catania]
         geosearch Sicily frommember Palermo byradius 170 km desc => [Catania edge1 Palermo]
         geosearch Sicily frommember Palermo byradius 170 km count 2 => [Palermo edge1]
         geosearch Sicily fromlonlat 15 37 byradius 500 km count 1 any => [Palermo]
         georadius Sicily 15 37 200 km withhash withdist withcoord desc => [[Palermo 190.4424 :3479099956230698 [13.36138933897018433 38.11555639549629859]] [Catania 56.4413 :3479447370796909 [15.08726745843887329 37.50266842333162032]]]
         georadius_ro Sicily 15 37 200000 m count 1 => [Catania]
         georadiusbymember Sicily Catania 1 mi => [Catania]
         georadiusbymember_ro Sicily Catania 200 km asc => [Catania Palermo]
         georadius none 15 37 200 km => []
         geosearch none frommember a byradius 1 m => []",
    );
}

#[test]
fn what_is_found_is_stored() {
    let server = Server::start(&[]);
    let mut client = server.client();
    sicily(&mut client);
    client.run_script(
        "set to text => +OK
         geosearchstore to Sicily fromlonlat 15 37 byradius 200 km => :2
         zrange to 0 -1 withscores => [Palermo 3479099956230698 Catania 3479447370796909]
         geosearchstore to Sicily fromlonlat 15 37 byradius 200 km count 1 storedist => :1
         zrange to 0 -1 withscores => [Catania 56.4412578701582]
         georadius Sicily 15 37 200 km storedist to count 1 desc => :1
         zrange to 0 -1 withscores => [Palermo 190.44242984775784]
         georadius Sicily 15 37 200 km store other store to => :2
         exists other => :0
         georadiusbymember Sicily Palermo 1 km store Sicily => :1
         zcard Sicily => :1
         georadius Sicily 100 37 1 km store to => :0
         exists to => :0
         set to text => +OK
         georadiusbymember none a x x store to => :0
         exists to => :0
         command getkeys georadius k 1 2 3 km store a storedist b => [k a b]
         command getkeys georadiusbymember k store 3 km count 1 => [k]",
    );
}

#[test]
fn what_is_wrong_with_a_search() {
    let server = Server::start(&[]);
    let mut client = server.client();
    sicily(&mut client);
    for (arguments, error) in [
        ("fromlonlat 15 37 byradius 200 km count 0", "COUNT must be > 0"),
        ("fromlonlat 15 37 byradius 200 km count x", "value is not an integer or out of range"),
        ("fromlonlat 15 37 byradius 200 km any", "the ANY argument requires COUNT argument"),
        ("fromlonlat 15 37 byradius 200 km store", "syntax error"),
        ("fromlonlat 15 37 byradius 200 km store to", "syntax error"),
        ("fromlonlat 15 37 byradius x km asc", "need numeric radius"),
        ("fromlonlat 15 37 byradius -1 km asc", "radius cannot be negative"),
        ("fromlonlat 15 37 byradius 1 x asc", "unsupported unit provided. please use M, KM, FT, MI"),
        ("fromlonlat 15 37 bybox x 1 km", "need numeric width"),
        ("fromlonlat 15 37 bybox 1 x km", "need numeric height"),
        ("fromlonlat 15 37 bybox 1 -1 km", "height or width cannot be negative"),
        ("fromlonlat 15 37 bybox 1 1 km byradius 1 km", "syntax error"),
        ("fromlonlat 15 37 frommember Palermo byradius 1 km", "syntax error"),
        ("fromlonlat 200 37 byradius 1 km", "invalid longitude,latitude pair 200.000000,37.000000"),
        ("frommember none byradius 1 km", "could not decode requested zset member"),
        ("asc byradius 1 km asc", "exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch"),
        ("fromlonlat 15 37 asc desc", "exactly one of BYRADIUS and BYBOX can be specified for geosearch"),
    ] {
        let reply = show(&client.call(&format!("geosearch Sicily {arguments}")));
        assert_eq!(reply, format!("-ERR {error}"), "{arguments}");
    }
    client.run_script(
        "geosearchstore to Sicily fromlonlat 15 37 byradius 1 km withdist => -ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options
         georadius Sicily 15 37 1 km withcoord store to => -ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options
         georadius_ro Sicily 15 37 1 km store to => -ERR syntax error
         georadius Sicily 15 37 1 km store => -ERR syntax error
         georadiusbymember Sicily none 1 km => -ERR could not decode requested zset member
         set text x => +OK",
    );
    for command in [
        "geoadd text 1 1 a",
        "geodist text a b",
        "geohash text",
        "geopos text a",
        "georadius text x x x x",
        "georadiusbymember text a x x",
        "geosearch text x x x x x",
        "geosearchstore to text x x x x x",
    ] {
        assert_eq!(show(&client.call(command)), WRONG_TYPE, "{command}");
    }
}
