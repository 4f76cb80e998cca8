/* Stores and loads chunks of 16 bytes to 1 MiB: each process has its own, which are in the library's hands while they are on their way.

   mpicc chunks.c -o chunks $(pkg-config --cflags --libs holdfast) && mpirun -n 4 chunks 127.0.0.1:6379 1000 */

#include "example.h"

enum { NAME = 40, LARGEST = 1 << 20, MOST_BYTES = 64 << 20 };

static long long buffers[WINDOW][LARGEST / 8];
static long size;

static void key_of(long chunk, char *key)
{
    snprintf(key, NAME, "chunk:%ld:%d:%ld", size, rank, chunk);
}

/* Each chunk has other words than all others. */
static void fill(long long *chunk, long number)
{
    for (long at = 0; at < size / 8; at++)
        chunk[at] = at * 2654435761 + (number * ranks + rank) * 1048583 + size;
}

static void store(struct window *window, long number)
{
    char key[NAME];
    int at = place(window, number);
    key_of(number, key);
    fill(buffers[at], number);
    need(hf_iset(client, key, strlen(key), buffers[at], size, &window->requests[at]), "iset");
}

static void stored(struct window *window, long number, hf_status status, const hf_reply *reply)
{
    (void)reply;
    /* To store a chunk twice does no harm. */
    if (status != HF_OK)
        store(window, number);
}

static void loaded(struct window *window, long number, hf_status status, const hf_reply *reply)
{
    static long long expected[LARGEST / 8];
    fill(expected, number);
    if (status != HF_OK || reply->type != HF_FILLED || (long)reply->len != size)
        fail("a chunk is missing");
    if (memcmp(buffers[(window->ended - 1) % WINDOW], expected, size) != 0)
        fail("another chunk");
}

int main(int argc, char **argv)
{
    long wanted = begin(argc, argv);
    struct window stores = { .ended_with = stored }, loads = { .ended_with = loaded };
    static const long sizes[] = { 16, 32, 64, 128, 256, 512, 1024, 2048, 16384, 131072, LARGEST };
    char part[NAME], key[NAME];
    double started;

    for (unsigned nth = 0; nth < sizeof sizes / sizeof *sizes; nth++) {
        long count;
        size = sizes[nth];
        count = wanted * size > MOST_BYTES / ranks ? MOST_BYTES / ranks / size : wanted;
        count = count > 0 ? count : 1;

        started = start_clock();
        for (long number = 0; number < count; number++) {
            store(&stores, number);
            if (number == count / 2)
                tell_half();
        }
        end_all(&stores);
        snprintf(part, sizeof part, "store-%ld", size);
        tell(part, started, count);

        started = start_clock();
        for (long number = 0; number < count; number++) {
            int at = place(&loads, number);
            key_of(number, key);
            need(hf_iget(client, key, strlen(key), buffers[at], size, &loads.requests[at]), "iget");
        }
        end_all(&loads);
        snprintf(part, sizeof part, "load-%ld", size);
        tell(part, started, count);
    }
    return finish();
}
