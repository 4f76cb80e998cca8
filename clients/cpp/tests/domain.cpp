// Graphs, n-grams and vectors in C++ against a server whose address is the argument.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <holdfast_domain.hpp>

#define CHECK(holds)                                                               \
    do {                                                                           \
        if (!(holds)) {                                                            \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            std::exit(1);                                                          \
        }                                                                          \
    } while (0)

using names = std::vector<std::string>;
using counts = std::vector<std::int64_t>;

static void graphs(const holdfast::client &client) {
    holdfast::graph graph(client);
    CHECK(graph.add_edges({{"a", "b"}, {"b", "a"}, {"a", "c"}, {"a", "b"}}) == 3);
    CHECK(graph.neighbors("a") == (names{"c", "b"}) && graph.predecessors("a") == names{"b"});
    CHECK(graph.is_connected("a", "c") && !graph.is_connected("c", "a"));
    CHECK(graph.degree("a") == std::pair(std::int64_t(2), std::int64_t(1)));
    CHECK(graph.remove_edges({{"a", "c"}, {"c", "a"}}) == 1 && graph.remove_edges({}) == 0);
    CHECK(graph.remove_vertex("a", 1) == 2 && graph.neighbors("b").empty());

    names many;
    std::vector<holdfast::graph::edge> edges;
    for (int number = 0; number < 3000; number++)
        many.push_back("v" + std::to_string(number));
    for (const std::string &name : many)
        edges.emplace_back(name, "hub");
    CHECK(graph.add_edges(edges) == 3000);
    names found;
    graph.scan("hub", "IN", [&](std::string_view name) { found.emplace_back(name); }, 100);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    std::sort(many.begin(), many.end());
    CHECK(found == many);
    CHECK(graph.remove_vertex("hub", 1000) == 3000);
}

static void n_grams(const holdfast::client &client) {
    holdfast::ngrams text(client, "text");
    CHECK(text.count({"to be", "or not", "to be"}) == (counts{1, 1, 2}));
    CHECK(text.add({{"to be", 10}, {"or not", -1}}) == (counts{12, 0}));
    CHECK(text.get({"to be", "none"}) == (counts{12, 0}) && text.get({}).empty());
}

template <class T> static void vectors(const holdfast::client &client) {
    holdfast::vector<T> vector(client, "vector");
    vector.create(4);
    CHECK(vector.size() == 4 && vector.get(3) == 0);
    vector.create(std::array<T, 3>{1, 2, 3});
    vector.set(1, T(7));
    CHECK(vector.get(0, 10) == (std::vector<T>{1, 7, 3}) && vector.get(0, 0).empty());
    vector.set(0, {T(5), T(6)});
    CHECK(vector.get(0) == 5 && vector.get(1) == 6);
    bool out = false;
    try {
        vector.get(3);
    } catch (const std::out_of_range &) {
        out = true;
    }
    CHECK(out);
    try {
        vector.set(3, T(1));
        CHECK(false);
    } catch (const holdfast::error &e) {
        CHECK(e.status() == HF_E_SERVER);
    }
}

int main(int, char **argv) {
    holdfast::client client(argv[1]);
    graphs(client);
    n_grams(client);
    vectors<std::int32_t>(client);
    vectors<std::int64_t>(client);
    vectors<float>(client);
    vectors<double>(client);
    std::puts("ok");
}
