// The C++ interface against a server whose address is the argument.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <holdfast.hpp>
#if __cplusplus >= 202002L
#include <span>
#endif

#define CHECK(holds)                                                               \
    do {                                                                           \
        if (!(holds)) {                                                            \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            std::exit(1);                                                          \
        }                                                                          \
    } while (0)

template <class Call>
static holdfast::error thrown(Call call) {
    try {
        call();
    } catch (const holdfast::error &e) {
        return e;
    }
    std::fprintf(stderr, "nothing was thrown\n");
    std::exit(1);
}

int main(int, char **argv) {
    holdfast::client client(argv[1]);
    std::array<std::int32_t, 5000> numbers;
    for (std::size_t i = 0; i < numbers.size(); i++)
        numbers[i] = std::int32_t(i * i);
    client.iset("numbers", numbers).get();
    std::vector<std::int32_t> copy(5000);
    holdfast::request filled = client.iget("numbers", copy);
    CHECK(filled.get().length() == sizeof numbers && filled.get().text().empty());
    CHECK(copy[4999] == numbers[4999]);
#if __cplusplus >= 202002L
    std::span<std::int32_t> half(copy.data(), 2500);
    client.iset("half", std::span<const std::int32_t>(half)).get();
    CHECK(client.bget("half").get().length() == 10000);
#endif

    // A request that goes out of scope leaves its buffer alone.
    {
        std::vector<char> gone(20000);
        holdfast::request dropped = client.iget("numbers", gone);
        holdfast::request moved = std::move(dropped);
        CHECK(!dropped.valid() && moved.valid());
    }
    CHECK(client.bset("s", "text").get().text() == "OK");
    holdfast::request get = client.bget("s");
    CHECK(get.wait_for(std::chrono::seconds(30)) == std::future_status::ready && get.test() == HF_DONE);
    CHECK(get.get().text() == "text" && get.get().type() == HF_STRING);
    CHECK(client.bget("none").get().is_nil());
    holdfast::request list = client.command({"RPUSH", "list", "a", std::string("b\0c", 3)});
    CHECK(list.get().integer() == 2);
    holdfast::request range = client.command({"LRANGE", "list", "0", "-1"}, HF_READ_ONLY | HF_LISTED);
    holdfast::reply reply = range.get();
    CHECK(reply.size() == 2 && reply[1].text() == std::string_view("b\0c", 3));
    CHECK(client.next_completion() == range.id() && client.next_completion() == 0);

    holdfast::error wrong = thrown([&] { client.command({"LPUSH", "s", "x"}).get(); });
    CHECK(wrong.status() == HF_E_SERVER && wrong.executed() == HF_EXECUTED);
    CHECK(std::string(wrong.what()).find("WRONGTYPE") == 0);
    std::array<char, 2> small;
    CHECK(thrown([&] { client.iget("s", small).get(); }).status() == HF_E_TOO_SMALL);
    CHECK(thrown([&] { client.command({"MULTI"}); }).status() == HF_E_INVALID);
    CHECK(thrown([] { holdfast::client none("nothing"); }).status() == HF_E_INVALID);
    get.release();
    CHECK(thrown([&] { get.get(); }).status() == HF_E_NO_REQUEST);
    bool out = false;
    try {
        reply[2];
    } catch (const std::out_of_range &) {
        out = true;
    }
    CHECK(out);
    // Requests that outlive their client know it.
    holdfast::request late;
    {
        holdfast::client other(argv[1]);
        late = other.bget("s");
    }
    holdfast::error closed = thrown([&] { late.get(); });
    CHECK(closed.status() == HF_E_NO_CLIENT && closed.executed() == HF_MAYBE_EXECUTED);
    std::puts("ok");
}
