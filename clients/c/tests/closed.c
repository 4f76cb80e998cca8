/* A server that closes the connection after each reply. To write to one that is gone is an error of the request at most, and not SIGPIPE,
   which would end the program. The argument is the path of a socket that is to be made. */

#include <holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROUNDS = 50 };

static int listener;
static atomic_int closed;

static int expect(int socket, const char *end)
{
    char buffer[1000];
    size_t len = 0;
    while (len < strlen(end) || memcmp(buffer + len - strlen(end), end, strlen(end)) != 0) {
        ssize_t got = read(socket, buffer + len, 1);
        if (got <= 0)
            return 0;
        len += (size_t)got;
    }
    return 1;
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        int socket = accept(listener, NULL, NULL);
        if (expect(socket, "HELLO\r\n$1\r\n3\r\n") && write(socket, "%0\r\n", 4) == 4
            && expect(socket, "value\r\n") && write(socket, "+OK\r\n", 5) == 5)
            shutdown(socket, SHUT_RDWR);
        close(socket);
        atomic_fetch_add(&closed, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    hf_options options = { .size = sizeof options };
    hf_client client;
    pthread_t server;
    int done = 0;

    if (argc != 2)
        return 2;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 10) != 0)
        return 2;
    pthread_create(&server, NULL, serve, NULL);
    options.servers = argv[1];
    if (hf_open(&options, &client, NULL, 0) != HF_OK)
        return 3;
    for (int round = 0; round < ROUNDS; round++) {
        hf_request request;
        hf_reply reply;
        int before = atomic_load(&closed);
        hf_status status;
        if (hf_bset(client, "key", 3, "value", 5, &request) != HF_OK || hf_wait(client, request, 10000) != HF_OK)
            return 4;
        status = hf_result(client, request, &reply);
        hf_release(client, request);
        if (status != HF_OK && status != HF_E_LOST)
            return 5;
        done += status == HF_OK;
        /* At once when the connection is closed, before the library would look whether it is. */
        while (status == HF_OK && atomic_load(&closed) == before)
            ;
    }
    if (done == 0)
        return 6;
    hf_close(client);
    printf("ok\n");
    return 0;
}
