//! The commands of RedisAI: tensors, and models and scripts, which are stored only: replies, errors that change nothing, what they
//! lie on, and a model over kills.

use crate::harness::{Client, Rng, Server, is_error, seed, show};
use holdfast_resp::Reply;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn tensors_are_returned_as_they_were_set() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ai.tensorset f float 2 2 values 0.5 -1 1e-3 inf => +OK
         ai.tensorget f meta values => [dtype FLOAT shape [:2 :2] values [0.5 -1 0.0010000000474974513 inf]]
         ai.tensorget f values => [0.5 -1 0.0010000000474974513 inf]
         ai.tensorget f meta => [dtype FLOAT shape [:2 :2]]
         ai.tensorset d DOUBLE 3 VALUES 0.1 1e300 -0 => +OK
         ai.tensorget d VALUES META => [dtype DOUBLE shape [:3] values [0.1 1e+300 -0]]
         ai.tensorset i8 int8 2 values 127 -128 => +OK
         ai.tensorget i8 meta values => [dtype INT8 shape [:2] values [:127 :-128]]
         ai.tensorset i16 int16 2 values 32767 -32768 => +OK
         ai.tensorget i16 meta values => [dtype INT16 shape [:2] values [:32767 :-32768]]
         ai.tensorset i32 int32 1 2 1 values 2147483647 -2147483648 => +OK
         ai.tensorget i32 meta values => [dtype INT32 shape [:1 :2 :1] values [:2147483647 :-2147483648]]
         ai.tensorset i64 int64 2 values 9223372036854775807 -9223372036854775808 => +OK
         ai.tensorget i64 meta values => [dtype INT64 shape [:2] values [:9223372036854775807 :-9223372036854775808]]
         ai.tensorset u8 uint8 2 values 255 0 => +OK
         ai.tensorget u8 meta values => [dtype UINT8 shape [:2] values [:255 :0]]
         ai.tensorset u16 uint16 2 values 65535 0 => +OK
         ai.tensorget u16 meta values => [dtype UINT16 shape [:2] values [:65535 :0]]
         ai.tensorset b bool 2 values 1 0 => +OK
         ai.tensorget b meta values => [dtype BOOL shape [:2] values [:1 :0]]
         ai.tensorset s string 2 values a bc => +OK
         ai.tensorget s meta values => [dtype STRING shape [:2] values [a bc]]
         ai.tensorset s string 2 => +OK
         ai.tensorget s values => [ ]
         ai.tensorset zeroes int32 2 2 => +OK
         ai.tensorget zeroes values => [:0 :0 :0 :0]
         ai.tensorset scalar int32 values 7 => +OK
         ai.tensorget scalar meta values => [dtype INT32 shape [] values [:7]]",
    );
    client.call("hello 3");
    client.run_script("ai.tensorget f meta values => [dtype FLOAT shape [:2 :2] values [,0.5 ,-1 ,0.0010000000474974513 ,inf]]");
}

#[test]
fn elements_come_and_go_as_bytes() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let doubles: Vec<f64> = (0..6000).map(|number| f64::from(number) / 7.0).collect();
    let bytes: Vec<u8> = doubles.iter().flat_map(|double| double.to_le_bytes()).collect();
    client.call_args(&[&b"ai.tensorset"[..], b"t", b"double", b"60", b"100", b"blob", &bytes]);
    let dimensions = Reply::Array(vec![Reply::Int(60), Reply::Int(100)]);
    let bulk = |text: &str| Reply::Bulk(text.into());
    let all = Reply::Array(vec![
        bulk("dtype"),
        bulk("DOUBLE"),
        bulk("shape"),
        dimensions,
        bulk("blob"),
        Reply::Bulk(bytes.clone()),
    ]);
    assert_eq!(client.call("ai.tensorget t meta blob"), all);
    assert_eq!(client.call("ai.tensorget t"), all);
    assert_eq!(client.call("ai.tensorget t blob"), Reply::Bulk(bytes.clone()));
    // From here on it lies in chunks.
    client.run_script("setrange t 32 abcdefgh => :48032");
    let mut changed = bytes.clone();
    changed[..8].copy_from_slice(b"abcdefgh");
    assert_eq!(client.call("ai.tensorget t blob"), Reply::Bulk(changed));
    let Reply::Array(each) = client.call("ai.tensorget t values") else { panic!("an array") };
    let texts: Vec<String> = doubles[1..].iter().map(f64::to_string).collect();
    assert_eq!(show(&Reply::Array(each[1..].to_vec())), format!("[{}]", texts.join(" ")));
    // What VALUES has is what BLOB has.
    client.run_script("ai.tensorset v int16 3 values 1 -2 300 => +OK");
    assert_eq!(client.call("ai.tensorget v blob"), Reply::Bulk(b"\x01\0\xfe\xff\x2c\x01".to_vec()));
    client.call_args(&[&b"ai.tensorset"[..], b"s", b"string", b"2", b"blob", b"a\0bc\0"]);
    client.run_script("ai.tensorget s values => [a bc]");
    assert_eq!(client.call("ai.tensorget s blob"), Reply::Bulk(b"a\0bc\0".to_vec()));
    client.call_args(&[&b"ai.tensorset"[..], b"s", b"string", b"2", b"values", b"a\0", b"bc"]);
    assert_eq!(client.call("ai.tensorget s blob"), Reply::Bulk(b"a\0bc\0".to_vec()));
}

#[test]
fn an_error_changes_nothing() {
    let server = Server::start(&["--proto-max-bulk-len", "1mb"]);
    let mut client = server.client();
    client.run_script(&format!(
        "ai.tensorset t int16 2 values 1 2 => +OK
         expire t 1000 => :1
         ai.tensorset t => -ERR wrong number of arguments for 'ai.tensorset' command
         ai.tensorset t float => -ERR wrong number of arguments for 'ai.tensorset' command
         ai.tensorset t float64 1 => -ERR invalid data type
         ai.tensorset t uint32 1 => -ERR invalid data type
         ai.tensorset t int16 0 => -ERR invalid or negative value found in tensor shape
         ai.tensorset t int16 -1 => -ERR invalid or negative value found in tensor shape
         ai.tensorset t int16 2 x => -ERR invalid or negative value found in tensor shape
         ai.tensorset t int16 2 blob => -ERR a single binary string should come after the BLOB argument in 'AI.TENSORSET' command
         ai.tensorset t int16 2 blob abcd efgh => -ERR a single binary string should come after the BLOB argument in 'AI.TENSORSET' command
         ai.tensorset t int16 2 blob abc => -ERR data length does not match tensor shape and type
         ai.tensorset t int16 2 blob abcde => -ERR data length does not match tensor shape and type
         ai.tensorset t int16 4294967296 4294967296 blob => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         ai.tensorset t int16 9223372036854775807 blob abcd => -ERR data length does not match tensor shape and type
         ai.tensorset t int16 9223372036854775807 => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         ai.tensorset t int16 524277 => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
         ai.tensorset t int16 2 values 1 => -ERR wrong number of values was given in 'AI.TENSORSET' command
         ai.tensorset t int16 2 values 1 2 3 => -ERR wrong number of values was given in 'AI.TENSORSET' command
         ai.tensorset t int16 2 values 1 32768 => -ERR invalid value
         ai.tensorset t int8 2 values 1 -129 => -ERR invalid value
         ai.tensorset t uint8 2 values 1 256 => -ERR invalid value
         ai.tensorset t uint16 2 values 1 -1 => -ERR invalid value
         ai.tensorset t bool 2 values 1 2 => -ERR invalid value
         ai.tensorset t int64 1 values 9223372036854775808 => -ERR invalid value
         ai.tensorset t float 1 values x => -ERR invalid value
         ai.tensorset t double 1 values nan => -ERR invalid value
         ai.tensorset t bool 2 blob ab => -ERR BOOL tensor elements must be 0 or 1
         ai.tensorset t string 1 blob ab => -ERR Number of string elements in data blob does not match tensor length
         ai.tensorget t => [dtype INT16 shape [:2] blob \x01\0\x02\0]
         ttl t => :1000
         ai.tensorget none => -ERR tensor key is empty or in a different shard
         ai.tensorget none meta blob => -ERR tensor key is empty or in a different shard
         ai.tensorget t floats => -ERR unsupported data format
         ai.tensorget t blob values => -ERR both BLOB and VALUES specified
         ai.tensorget t meta blob values => -ERR wrong number of arguments for 'ai.tensorget' command
         set text hello => +OK
         sadd set a => :1
         ai.tensorget text => {WRONG_TYPE}
         ai.tensorget set => {WRONG_TYPE}
         ai.tensorset text float 1 => {WRONG_TYPE}
         ai.tensorset set float 1 => {WRONG_TYPE}
         get text => hello
         smembers set => [a]
         ai.tensorset t int16 524276 => +OK
         strlen t => :1048576
         ttl t => :-1"
    ));
    for blob in [&b"a\0b"[..], b"a\0", b"a\0b\0c\0", b""] {
        let reply = client.call_args(&[&b"ai.tensorset"[..], b"t", b"string", b"2", b"blob", blob]);
        assert!(is_error(&reply, "ERR Number of string elements"), "{}", blob.escape_ascii());
    }
    let reply = client.call_args(&[&b"ai.tensorset"[..], b"t", b"string", b"1", b"values", b"a\0b"]);
    assert_eq!(show(&reply), "-ERR C-string value contains null character");
    // A string that only begins like a tensor.
    client.call_args(&[&b"set"[..], b"damaged", b"\0TENSOR\x01"]);
    assert_eq!(show(&client.call("ai.tensorget damaged")), WRONG_TYPE);
}

#[test]
fn tensors_go_where_strings_go() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ai.tensorset a int32 2 values 1 2 => +OK
         type a => +string
         exists a => :1
         copy a b => :1
         rename a c => +OK
         exists a => :0
         ai.tensorset c int32 2 values 3 4 => +OK
         ai.tensorget b values => [:1 :2]
         ai.tensorget c values => [:3 :4]",
    );
    let Reply::Bulk(dumped) = client.call("dump c") else { panic!("a payload") };
    client.call_args(&[&b"restore"[..], b"d", b"0", &dumped]);
    client.run_script(
        "ai.tensorget d meta values => [dtype INT32 shape [:2] values [:3 :4]]
         del b => :1
         unlink c => :1
         ai.tensorget b => -ERR tensor key is empty or in a different shard
         ai.tensorget c => -ERR tensor key is empty or in a different shard
         acl setuser reader on nopass ~d +@read => +OK
         auth reader x => +OK
         ai.tensorget d values => [:3 :4]",
    );
    for refused in ["ai.tensorset d int32 1", "ai.tensorget c"] {
        assert!(is_error(&client.call(refused), "NOPERM"), "{refused}");
    }
}

#[test]
fn zeroes_take_no_memory() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ai.tensorset t double 1000 1000 => +OK\n ai.tensorget t meta => [dtype DOUBLE shape [:1000 :1000]]",
    );
    let Reply::Int(bytes) = client.call("memory usage t") else { panic!("a number") };
    assert!(bytes < 100_000, "{bytes}");
    assert_eq!(client.call("ai.tensorget t blob"), Reply::Bulk(vec![0; 8_000_000]));
}

#[test]
fn models_are_stored_and_returned() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ai.modelstore m torch cpu blob graph => +OK
         ai.modelget m blob => graph
         ai.modelget m => [backend TORCH device cpu tag  batchsize :0 minbatchsize :0 inputs [] outputs [] minbatchtimeout :0 blob graph]
         ai.modelstore m TF GPU:1 TAG v1 BATCHSIZE 10 MINBATCHSIZE 2 MINBATCHTIMEOUT 5 INPUTS 2 a b OUTPUTS 1 c BLOB gr aph => +OK
         ai.modelget m blob => graph
         ai.modelget m meta => [backend TF device GPU:1 tag v1 batchsize :10 minbatchsize :2 inputs [a b] outputs [c] minbatchtimeout :5]
         ai.modelget m meta blob => [backend TF device GPU:1 tag v1 batchsize :10 minbatchsize :2 inputs [a b] outputs [c] minbatchtimeout :5 blob graph]
         ai.info m => [key m type MODEL backend TF device GPU:1 tag v1 duration :0 samples :0 calls :0 errors :0]
         ai.info m resetstat => +OK
         copy m n => :1
         ai.modeldel m => +OK
         ai.modelget m blob => -ERR model key is empty
         ai.modeldel m => -ERR model key is empty
         ai.info m => -ERR cannot find run info for key
         ai.modelget n blob => graph",
    );
}

#[test]
fn long_models_are_returned_in_parts() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ai.config get model_chunk_size => :535822336
         ai.config model_chunk_size 1024 => +OK
         ai.config get MODEL_CHUNK_SIZE => :1024
         config get ai-model-chunk-size => [ai-model-chunk-size 1024]
         ai.config model_chunk_size => -ERR MODEL_CHUNK_SIZE: missing chunk size
         ai.config model_chunk_size x => -ERR MODEL_CHUNK_SIZE: invalid chunk size
         ai.config model_chunk_size 0 => -ERR MODEL_CHUNK_SIZE: invalid chunk size
         ai.config get backendspath => nil
         ai.config get => -ERR wrong number of arguments for 'ai.config' command
         ai.config loadbackend torch x.so => -ERR error loading backend
         ai.config reset => -ERR unsupported subcommand",
    );
    let model: Vec<u8> = (0..2500u32).map(|byte| byte as u8).collect();
    for (len, parts) in [(1024, 1), (1025, 2), (2048, 2), (2500, 3)] {
        client.call_args(&[&b"ai.modelstore"[..], b"m", b"onnx", b"cpu", b"blob", &model[..len]]);
        let bulks = model[..len].chunks(1024).map(|part| Reply::Bulk(part.to_vec()));
        let expected = match parts {
            1 => Reply::Bulk(model[..len].to_vec()),
            _ => Reply::Array(bulks.collect()),
        };
        assert_eq!(client.call("ai.modelget m blob"), expected, "{len} bytes");
        let Reply::Array(all) = client.call("ai.modelget m") else { panic!("an array") };
        assert_eq!(all[17], expected);
    }
}

#[test]
fn a_model_that_is_not_complete_changes_nothing() {
    let server = Server::start(&["--proto-max-bulk-len", "1mb"]);
    let mut client = server.client();
    client.run_script(&format!(
        "ai.modelstore m torch cpu blob graph => +OK
         ai.modelstore m torch cpu blob => -ERR wrong number of arguments for 'ai.modelstore' command
         ai.modelstore m caffe cpu blob x => -ERR unsupported backend
         ai.modelstore m torch tpu blob x => -ERR Invalid DEVICE
         ai.modelstore m torch cpu batchsize x blob y => -ERR Invalid argument for BATCHSIZE
         ai.modelstore m torch cpu batchsize -1 blob y => -ERR Invalid argument for BATCHSIZE
         ai.modelstore m torch cpu minbatchsize 1 blob y => -ERR MINBATCHSIZE specified without BATCHSIZE
         ai.modelstore m torch cpu minbatchtimeout 1 blob y => -ERR MINBATCHTIMEOUT specified without MINBATCHSIZE
         ai.modelstore m torch cpu tag blob => -ERR Insufficient arguments, missing model BLOB
         ai.modelstore m torch cpu tag x blob => -ERR Insufficient arguments, missing model BLOB
         ai.modelstore m torch cpu data x => -ERR Invalid argument, expected BLOB
         ai.modelstore m torch cpu inputs 1 a blob x => -ERR INPUTS argument should not be specified for this backend
         ai.modelstore m tf cpu blob x => -ERR INPUTS not specified for TF
         ai.modelstore m tf cpu inputs 1 a blob x => -ERR OUTPUTS not specified for TF
         ai.modelstore m tf cpu inputs 0 outputs 1 a blob x => -ERR Invalid argument for input_count
         ai.modelstore m tf cpu inputs x outputs 1 a blob x => -ERR Invalid argument for input_count
         ai.modelstore m tf cpu inputs 1 a outputs 0 blob x => -ERR Invalid argument for output_count
         ai.modelstore m tf cpu inputs 9 a outputs 1 a blob x => -ERR number of model inputs does not match the number of given arguments
         ai.modelget m => [backend TORCH device cpu tag  batchsize :0 minbatchsize :0 inputs [] outputs [] minbatchtimeout :0 blob graph]
         ai.modelexecute m inputs 1 a outputs 1 b => -ERR Could not load backend TORCH: this server stores models and scripts, and runs none
         ai.modelrun m inputs a outputs b => -ERR Could not load backend TORCH: this server stores models and scripts, and runs none
         ai.modelexecute none inputs 1 a outputs 1 b => -ERR model key is empty
         ai.scriptset s cpu source code => +OK
         ai.tensorset t float 1 => +OK
         set text hello => +OK
         ai.modelstore s torch cpu blob x => {WRONG_TYPE}
         ai.modelstore t torch cpu blob x => {WRONG_TYPE}
         ai.modelget s => {WRONG_TYPE}
         ai.modeldel s => {WRONG_TYPE}
         ai.modelget text => {WRONG_TYPE}
         ai.modelexecute s inputs 1 a outputs 1 b => {WRONG_TYPE}
         ai.scriptset m cpu source x => {WRONG_TYPE}
         ai.scriptget m => {WRONG_TYPE}
         ai.scriptdel t => {WRONG_TYPE}
         ai.tensorset m float 1 => {WRONG_TYPE}
         ai.tensorget m => {WRONG_TYPE}
         ai.info t => -ERR cannot find run info for key
         ai.modelget m blob => graph
         ai.scriptget s source => code"
    ));
    let half = vec![b'x'; 600_000];
    let reply = client.call_args(&[&b"ai.modelstore"[..], b"m", b"onnx", b"cpu", b"blob", &half, &half]);
    assert!(is_error(&reply, "ERR string exceeds"), "{}", show(&reply));
}

#[test]
fn scripts_are_stored_and_returned() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "ai.scriptset s gpu source code => +OK
         ai.scriptget s source => code
         ai.scriptget s => [device gpu tag  Entry@Points [] source code]
         ai.scriptstore s cpu tag v2 entry_points 2 f g source more => +OK
         ai.scriptget s meta => [device cpu tag v2 Entry@Points [f g]]
         ai.scriptget s meta source => [device cpu tag v2 Entry@Points [f g] source more]
         ai.info s => [key s type SCRIPT backend TORCH device cpu tag v2 duration :0 samples :-1 calls :0 errors :0]
         ai.scriptset s cpu tag x source => -ERR Insufficient arguments, missing script SOURCE
         ai.scriptset s cpu code x => -ERR Insufficient arguments, missing script SOURCE
         ai.scriptset s cpu source x y => -ERR wrong number of arguments for 'ai.scriptset' command
         ai.scriptset s none source x => -ERR Invalid DEVICE
         ai.scriptstore s cpu source x y z u v => -ERR Insufficient arguments, missing script entry points
         ai.scriptstore s cpu entry_points x f source y => -ERR Non numeric entry points number provided to AI.SCRIPTSTORE command
         ai.scriptstore s cpu entry_points 9 f source y => -ERR Insufficient arguments, missing script entry points
         ai.scriptstore s cpu entry_points 3 f source y => -ERR Insufficient arguments, missing script SOURCE
         ai.scriptget s source => more
         ai.scriptrun s f inputs a outputs b => -ERR Could not load backend TORCH: this server stores models and scripts, and runs none
         ai.scriptexecute s f inputs 1 a outputs 1 b => -ERR Could not load backend TORCH: this server stores models and scripts, and runs none
         ai.scriptrun none f => -ERR script key is empty
         ai.scriptdel s => +OK
         ai.scriptget s => -ERR script key is empty
         ai.scriptdel s => -ERR script key is empty"
            .replace("Entry@Points", "Entry Points")
            .as_str(),
    );
}

/// Sets the tensor `t` to random numbers of a random shape; what AI.TENSORGET then shows.
fn step(rng: &mut Rng, client: &mut Client) -> String {
    let most = if rng.one_in(3) { 3000 } else { 4 };
    let shape: Vec<u64> =
        [1 + rng.below(most), 1 + rng.below(3)].into_iter().take(1 + rng.below(2) as usize).collect();
    let count = shape.iter().product::<u64>();
    let element = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16"][rng.below(6) as usize];
    let numbers: Vec<String> = (0..count).map(|_| rng.below(128).to_string()).collect();
    let mut words: Vec<String> = ["ai.tensorset", "t", element].map(String::from).into();
    words.extend(shape.iter().map(u64::to_string));
    let is_zero = rng.one_in(4);
    if !is_zero {
        words.push("values".into());
        words.extend(numbers.iter().cloned());
    }
    assert_eq!(show(&client.call_args(&words)), "+OK", "{words:?}");
    let list = |numbers: &[String]| {
        format!("[{}]", numbers.iter().map(|number| format!(":{number}")).collect::<Vec<_>>().join(" "))
    };
    let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
    let numbers = if is_zero { vec!["0".into(); count as usize] } else { numbers };
    format!("[dtype {element} shape {} values {}]", list(&shape), list(&numbers))
}

#[test]
fn tensors_are_as_a_model_has_them_over_kills() {
    let mut rng = Rng(seed());
    let mut server = Server::start(&["--appendfsync", "always"]);
    for _ in 0..4 {
        let mut client = server.client();
        let mut expected = String::new();
        for _ in 0..100 {
            expected = step(&mut rng, &mut client);
            if rng.one_in(10) {
                assert_eq!(show(&client.call("ai.tensorget t meta values")), expected);
            }
        }
        drop(client);
        server = server.restart(Server::kill);
        assert_eq!(show(&server.client().call("ai.tensorget t meta values")), expected);
    }
}
