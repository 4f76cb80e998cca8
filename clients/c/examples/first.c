/* A first program: sets a grid while it goes on computing, and gets it back into place.

   cc first.c -o first $(pkg-config --cflags --libs holdfast) && ./first 127.0.0.1:6379 */

#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>

static double grid[1 << 17], copy[1 << 17];

static void check(hf_status status, const char *what)
{
    if (status != HF_OK) {
        fprintf(stderr, "%s: error %d\n", what, (int)status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    hf_options options = { .size = sizeof options, .servers = argc > 1 ? argv[1] : "127.0.0.1:6379" };
    hf_client client;
    hf_request set, get;
    hf_reply reply;
    char error[200] = "";
    double sum = 0;

    if (hf_open(&options, &client, error, sizeof error) != HF_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    for (int i = 0; i < 1 << 17; i++)
        grid[i] = i;

    /* The grid is the library's until the request is done: it may be read meanwhile, and not be changed. */
    check(hf_iset(client, "grid", 4, grid, sizeof grid, &set), "iset");
    for (int i = 0; i < 1 << 17; i++)
        sum += grid[i];
    check(hf_wait(client, set, -1), "wait");
    if (hf_result(client, set, &reply) != HF_OK) {
        hf_message(client, set, error, sizeof error);
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    hf_release(client, set);

    check(hf_iget(client, "grid", 4, copy, sizeof copy, &get), "iget");
    check(hf_wait(client, get, -1), "wait");
    check(hf_result(client, get, &reply), "the grid");
    printf("%zu bytes, sum %.0f, last %.0f\n", reply.len, sum, copy[(1 << 17) - 1]);
    hf_release(client, get);
    hf_close(client);
    return 0;
}
