/* Holdfast's client library: see README.md. Written by cbindgen from crates/client-c/src/abi.rs.

   The contract that functions refer to: a pointer with a length is null, or has so many bytes or elements; a string is
   null, or ends with a zero byte; bytes that are handed over stay valid, and are not touched, until the request's state
   says that they are free. */

#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

/*
 For hf_command: the arguments are handed over, not copied.
 */
#define HF_LENT 1

/*
 For hf_command: the command changes nothing, so that it may be executed again.
 */
#define HF_READ_ONLY 2

/*
 For hf_command: the request is to be told by hf_next_completion.
 */
#define HF_LISTED 4

/*
 For hf_command: the request may take as long as it likes.
 */
#define HF_UNTIMED 8

/*
 What a call, or a request, came to. Errors are negative.
 */
typedef enum hf_status {
  /*
   It is done.
   */
  HF_OK = 0,
  /*
   It is not done yet, or nothing is there yet.
   */
  HF_IN_PROGRESS = 1,
  /*
   The server has replied with an error, which is the reply's data.
   */
  HF_E_SERVER = -1,
  /*
   The string does not fit into the buffer; the reply's integer is its length.
   */
  HF_E_TOO_SMALL = -2,
  /*
   The connection was lost.
   */
  HF_E_LOST = -3,
  /*
   The request has taken too long.
   */
  HF_E_TIMED_OUT = -4,
  /*
   The request was cancelled.
   */
  HF_E_CANCELLED = -5,
  /*
   The server lets nobody in.
   */
  HF_E_REFUSED = -6,
  /*
   Another server has the key.
   */
  HF_E_REDIRECTED = -7,
  /*
   Too many requests or bytes are held: take results, or make progress.
   */
  HF_E_FULL = -8,
  /*
   There is no such request: it was released, or never was.
   */
  HF_E_NO_REQUEST = -9,
  /*
   There is no such client: it was closed, or never was.
   */
  HF_E_NO_CLIENT = -10,
  /*
   An argument that cannot be right: null, a wrong size, a command that is refused.
   */
  HF_E_INVALID = -11,
  /*
   The client could not be set up: addresses, certificates, descriptors.
   */
  HF_E_SETUP = -12,
  /*
   The reply takes more than `reply_bytes_max`, and nothing of it was kept.
   */
  HF_E_TOO_LARGE = -13,
} hf_status;

/*
 How far a request has come.
 */
typedef enum hf_state {
  /*
   Buffers are in use.
   */
  HF_QUEUED = 0,
  /*
   Buffers that were handed over for sending are the caller's again; one for the reply is not.
   */
  HF_BUFFER_FREE = 1,
  /*
   All buffers are the caller's again, and the result is there.
   */
  HF_DONE = 2,
} hf_state;

/*
 What a reply is.
 */
typedef enum hf_type {
  /*
   Nothing: there is no such key, element, or reply.
   */
  HF_NIL = 0,
  /*
   Bytes: data and len.
   */
  HF_STRING = 1,
  /*
   A short text such as OK: data and len.
   */
  HF_STATUS = 2,
  /*
   An error: data and len.
   */
  HF_ERROR = 3,
  /*
   integer.
   */
  HF_INTEGER = 4,
  /*
   number.
   */
  HF_DOUBLE = 5,
  /*
   integer is 0 or 1.
   */
  HF_BOOL = 6,
  /*
   items and count.
   */
  HF_ARRAY = 7,
  /*
   items and count; keys and values take turns.
   */
  HF_MAP = 8,
  /*
   items and count.
   */
  HF_SET = 9,
  /*
   A string that is in the caller's buffer: len.
   */
  HF_FILLED = 10,
} hf_type;

/*
 Whether a server has executed a request.
 */
typedef enum hf_executed {
  /*
   It has not, and will not.
   */
  HF_NOT_EXECUTED = 0,
  /*
   It may have, or may still do so.
   */
  HF_MAYBE_EXECUTED = 1,
  /*
   It has.
   */
  HF_EXECUTED = 2,
} hf_executed;

/*
 What a client is told at the start. What is 0 or null is as usual; size has to be set.
 */
typedef struct hf_options {
  /*
   sizeof(struct hf_options).
   */
  size_t size;
  /*
   Addresses, separated by spaces: HOST:PORT, [IPv6]:PORT, or the path of a Unix socket.
   */
  const char *servers;
  /*
   The user's name.
   */
  const char *user;
  /*
   The password.
   */
  const char *password;
  /*
   The connections' name.
   */
  const char *name;
  /*
   A PEM file with the certificates of those who sign servers; with it, TLS is spoken.
   */
  const char *tls_ca_file;
  /*
   A PEM file with the client's certificate, and one with its key.
   */
  const char *tls_cert_file;
  /*
   See tls_cert_file.
   */
  const char *tls_key_file;
  /*
   The name in the servers' certificates, if it is another one than the host's.
   */
  const char *tls_server_name;
  /*
   The database.
   */
  uint32_t database;
  /*
   2 for RESP2, 0 or 3 for RESP3.
   */
  uint32_t protocol;
  /*
   Whether a thread of the library's own makes progress.
   */
  uint32_t thread;
  /*
   Times that a request may be sent again: 0 for 5.
   */
  uint32_t resends_max;
  /*
   Requests in flight or not released: 0 for 65,536.
   */
  size_t requests_max;
  /*
   Bytes of requests in flight and of results: 0 for 1 GiB.
   */
  size_t bytes_max;
  /*
   Bytes of one reply: 0 for 1 GiB.
   */
  size_t reply_bytes_max;
  /*
   Milliseconds that a request may take: 0 for 30,000, negative for any time.
   */
  int64_t request_timeout_ms;
  /*
   Milliseconds that a connection may take to be made: 0 for 5,000.
   */
  int64_t connect_timeout_ms;
} hf_options;

/*
 A client; 0 is none.
 */
typedef uint64_t hf_client;

/*
 A request of a client; 0 is none.
 */
typedef uint64_t hf_request;

/*
 A reply, or a part of one. It and what it points to are the library's until the request is released.
 */
typedef struct hf_reply {
  /*
   What it is.
   */
  enum hf_type type;
  /*
   Whether the request was executed.
   */
  enum hf_executed executed;
  /*
   An integer, a truth value, or the length that a buffer should have had.
   */
  int64_t integer;
  /*
   A floating-point number.
   */
  double number;
  /*
   The bytes of a string; a zero byte does not follow them.
   */
  const char *data;
  /*
   How many they are.
   */
  size_t len;
  /*
   The elements of an array, a set or a map.
   */
  const struct hf_reply *items;
  /*
   How many they are; a pair of a map is two.
   */
  size_t count;
} hf_reply;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Sets up a client. Connections are made when the first request needs them. `error`, which may be null, gets what went
 wrong as a string, cut to `error_size` bytes with the zero byte.

 # Safety
 The contract; `options`, if it is not null, has at least its first field.
 */
enum hf_status hf_open(const struct hf_options *options,
                       hf_client *client,
                       char *error,
                       size_t error_size);

/*
 Closes a client. Its requests are gone; other threads that wait return HF_E_NO_CLIENT, and all buffers are the caller's again once
 their calls have returned.
 */
enum hf_status hf_close(hf_client client);

/*
 Sets a string. The value is the library's until the request's state is HF_BUFFER_FREE.

 # Safety
 The contract.
 */
enum hf_status hf_iset(hf_client client,
                       const void *key,
                       size_t key_len,
                       const void *value,
                       size_t value_len,
                       hf_request *out);

/*
 Sets a string. The value is the caller's again when the call returns.

 # Safety
 The contract.
 */
enum hf_status hf_bset(hf_client client,
                       const void *key,
                       size_t key_len,
                       const void *value,
                       size_t value_len,
                       hf_request *out);

/*
 Gets a string right into a buffer, which is the library's until the request is done. With null and 0 it is as
 hf_bget.

 # Safety
 The contract.
 */
enum hf_status hf_iget(hf_client client,
                       const void *key,
                       size_t key_len,
                       void *buffer,
                       size_t capacity,
                       hf_request *out);

/*
 Gets a string, which will be in memory of the library.

 # Safety
 The contract.
 */
enum hf_status hf_bget(hf_client client, const void *key, size_t key_len, hf_request *out);

/*
 Hands over any command: its name and arguments, which of them is the first key (1 for most commands, negative for none),
 HF_ flags, and a buffer for the reply, or null.

 # Safety
 The contract.
 */
enum hf_status hf_command(hf_client client,
                          size_t argc,
                          const void *const *argv,
                          const size_t *lens,
                          int key_at,
                          uint32_t flags,
                          void *buffer,
                          size_t capacity,
                          hf_request *out);

/*
 Sends what waits to be sent, without waiting for anything.
 */
enum hf_status hf_flush(hf_client client);

/*
 Makes progress, and waits no longer than so many milliseconds for a request to be done; negative: an hour.
 */
enum hf_status hf_progress(hf_client client, int64_t timeout_ms);

/*
 Makes what progress there is without waiting: HF_OK if the request is done, else HF_IN_PROGRESS. `state`, which may be null,
 gets how far it is.

 # Safety
 The contract.
 */
enum hf_status hf_test(hf_client client,
                       hf_request id,
                       enum hf_state *state);

/*
 Waits until the buffers that were handed over for sending are the caller's again, or so many milliseconds; negative: for any time.
 */
enum hf_status hf_wait_buffer(hf_client client,
                              hf_request id,
                              int64_t timeout_ms);

/*
 Waits until the request is done, or so many milliseconds; negative: for any time.
 */
enum hf_status hf_wait(hf_client client, hf_request id, int64_t timeout_ms);

/*
 Waits until one of the requests is done; `index` gets which.

 # Safety
 The contract.
 */
enum hf_status hf_wait_any(hf_client client,
                           const hf_request *ids,
                           size_t count,
                           int64_t timeout_ms,
                           size_t *index);

/*
 Waits until at least one of the requests is done; `indices` has room for `count`, and gets which are; `found` gets how many.

 # Safety
 The contract.
 */
enum hf_status hf_wait_some(hf_client client,
                            const hf_request *ids,
                            size_t count,
                            int64_t timeout_ms,
                            size_t *indices,
                            size_t *found);

/*
 Waits until all the requests are done.

 # Safety
 The contract.
 */
enum hf_status hf_wait_all(hf_client client, const hf_request *ids, size_t count, int64_t timeout_ms);

/*
 Ends a request. All buffers are the caller's again; the result says whether the server may execute it.
 */
enum hf_status hf_cancel(hf_client client, hf_request id);

/*
 The next request with HF_LISTED that is done; HF_IN_PROGRESS if there is none.

 # Safety
 The contract.
 */
enum hf_status hf_next_completion(hf_client client, hf_request *out);

/*
 A descriptor that is readable when hf_progress, and then hf_next_completion, are to be called; -1 if there is no such client. It is the
 client's: it must not be read from or closed.
 */
int hf_event_fd(hf_client client);

/*
 The result of a request that is done: HF_OK and the reply, or why there is none. It can be asked for until the request
 is released.

 # Safety
 The contract.
 */
enum hf_status hf_result(hf_client client,
                         hf_request id,
                         struct hf_reply *out);

/*
 What went wrong with a request, as a string, cut to `size` bytes with the zero byte.

 # Safety
 The contract.
 */
enum hf_status hf_message(hf_client client, hf_request id, char *to, size_t size);

/*
 Lets go of a request and its result, if there is one; it is cancelled if it is not done.
 */
enum hf_status hf_release(hf_client client, hf_request id);

/*
 Lets go of several requests, up to the first that is none.

 # Safety
 The contract.
 */
enum hf_status hf_release_all(hf_client client, const hf_request *ids, size_t count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOLDFAST_H */
