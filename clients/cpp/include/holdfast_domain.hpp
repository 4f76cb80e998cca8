// Graphs, counts of n-grams and vectors in C++17: what Holdfast's commands for programs that compute do, by values that have types.
#ifndef HOLDFAST_DOMAIN_HPP
#define HOLDFAST_DOMAIN_HPP

#include <cstring>
#include <holdfast.hpp>

namespace holdfast {

namespace detail {

inline std::vector<std::string> strings(const reply &list) {
    std::vector<std::string> all;
    for (std::size_t at = 0; at < list.size(); at++)
        all.emplace_back(list[at].text());
    return all;
}

inline std::vector<std::int64_t> integers(const reply &list) {
    std::vector<std::int64_t> all;
    for (std::size_t at = 0; at < list.size(); at++)
        all.push_back(list[at].integer());
    return all;
}

template <class T> constexpr const char *type_of() {
    static_assert(std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t> || std::is_same_v<T, float> ||
                      std::is_same_v<T, double>,
                  "what vectors have");
    return std::is_same_v<T, std::int32_t>   ? "INT32"
           : std::is_same_v<T, std::int64_t> ? "INT64"
           : std::is_same_v<T, float>        ? "FLOAT"
                                             : "DOUBLE";
}

} // namespace detail

/// A directed graph whose vertices are keys of one server, or of one slot of a cluster. It looks at its client, which must outlive it.
class graph {
public:
    /// An edge: a vertex, and the one that it leads to.
    using edge = std::pair<std::string_view, std::string_view>;

    explicit graph(const client &client) noexcept : client_(&client) {}

    /// How many were not there. All are added in one transaction.
    std::int64_t add_edges(const std::vector<edge> &edges) const { return change("GRAPH.ADDEDGE", edges); }
    /// How many were there.
    std::int64_t remove_edges(const std::vector<edge> &edges) const { return change("GRAPH.REMOVEEDGE", edges); }

    bool is_connected(std::string_view from, std::string_view to) const {
        return client_->command({"GRAPH.ISCONNECTED", from, to}, HF_READ_ONLY).get().integer() == 1;
    }
    /// The vertices that edges lead to from this one.
    std::vector<std::string> neighbors(std::string_view vertex) const {
        return detail::strings(client_->command({"GRAPH.NEIGHBORS", vertex}, HF_READ_ONLY).get());
    }
    /// The vertices that edges lead to this one from.
    std::vector<std::string> predecessors(std::string_view vertex) const {
        return detail::strings(client_->command({"GRAPH.PREDECESSORS", vertex}, HF_READ_ONLY).get());
    }
    /// Calls `each` with the same, in steps, for vertices with many: direction is "OUT" or "IN". One that is there all the
    /// time comes at least once.
    template <class Each>
    void scan(std::string_view vertex, std::string_view direction, Each each, std::size_t count = 10000) const {
        std::string cursor = "0", step = std::to_string(count);
        do {
            request scan = client_->command({"GRAPH.SCAN", vertex, direction, cursor, "COUNT", step}, HF_READ_ONLY);
            reply found = scan.get();
            for (std::size_t at = 0; at < found[1].size(); at++)
                each(found[1][at].text());
            cursor = found[0].text();
        } while (cursor != "0");
    }
    /// How many edges begin at a vertex, and how many end there.
    std::pair<std::int64_t, std::int64_t> degree(std::string_view vertex) const {
        request degree = client_->command({"GRAPH.DEGREE", vertex}, HF_READ_ONLY);
        return {degree.get()[1].integer(), degree.get()[3].integer()};
    }
    /// Removes a vertex with all of its edges, those to so many neighbours at a time; returns how many they were.
    std::int64_t remove_vertex(std::string_view vertex, std::size_t count = 100000) const {
        std::string step = std::to_string(count);
        for (std::int64_t removed = 0;;) {
            auto more = client_->command({"GRAPH.REMOVEVERTEX", vertex, "COUNT", step}).get().integer();
            if (more == 0)
                return removed;
            removed += more;
        }
    }

private:
    std::int64_t change(const char *command, const std::vector<edge> &edges) const {
        if (edges.empty())
            return 0;
        std::vector<bytes> args{command};
        for (const auto &[from, to] : edges) {
            args.emplace_back(from);
            args.emplace_back(to);
        }
        return client_->command(args).get().integer();
    }

    const client *client_;
};

/// The counts of n-grams in a key. It looks at its client, which must outlive it.
class ngrams {
public:
    ngrams(const client &client, std::string_view key) : client_(&client), key_(key) {}

    /// Counts n-grams, each as often as it is there; returns what each comes to.
    std::vector<std::int64_t> count(const std::vector<std::string_view> &all) const { return call("NGRAM.INCR", all, 0); }
    /// Adds to counts; returns what each comes to.
    std::vector<std::int64_t> add(const std::vector<std::pair<std::string_view, std::int64_t>> &counts) const {
        std::vector<std::string> texts;
        for (const auto &pair : counts)
            texts.push_back(std::to_string(pair.second));
        std::vector<std::string_view> args;
        for (std::size_t at = 0; at < counts.size(); at++) {
            args.push_back(counts[at].first);
            args.push_back(texts[at]);
        }
        return call("NGRAM.INCRBY", args, 0);
    }
    /// The counts, 0 of one that was never counted.
    std::vector<std::int64_t> get(const std::vector<std::string_view> &all) const {
        return call("NGRAM.GET", all, HF_READ_ONLY);
    }

private:
    std::vector<std::int64_t> call(const char *command, const std::vector<std::string_view> &more, std::uint32_t flags) const {
        if (more.empty())
            return {};
        std::vector<bytes> args{command, key_};
        args.insert(args.end(), more.begin(), more.end());
        return detail::integers(client_->command(args, flags).get());
    }

    const client *client_;
    std::string key_;
};

/// The vector of numbers in a key. It looks at its client, which must outlive it.
template <class T> class vector {
public:
    vector(const client &client, std::string_view key) : client_(&client), key_(key) {}

    /// Makes a vector of zeroes the key's value.
    void create(std::size_t length) const {
        client_->command({"VEC.CREATE", key_, detail::type_of<T>(), "LEN", std::to_string(length)}).get();
    }
    /// Makes a vector of these elements the key's value.
    template <class C, class E = detail::element<const C>> void create(const C &elements) const {
        static_assert(std::is_same_v<std::remove_const_t<E>, T>, "elements of the vector's type");
        client_->command({"VEC.CREATE", key_, detail::type_of<T>(), "BLOB", elements}).get();
    }
    std::size_t size() const {
        request info = client_->command({"VEC.INFO", key_}, HF_READ_ONLY);
        return std::size_t(info.get()[3].integer());
    }
    T get(std::size_t index) const {
        std::vector<T> one = get(index, 1);
        if (one.empty())
            throw std::out_of_range("the vector has fewer elements");
        return one[0];
    }
    /// So many elements from one on, or fewer, if the vector ends before.
    std::vector<T> get(std::size_t first, std::size_t count) const {
        if (count == 0)
            return {};
        std::string start = std::to_string(first), stop = std::to_string(first + count - 1);
        request range = client_->command({"VEC.RANGE", key_, start, stop, "BLOB"}, HF_READ_ONLY);
        std::string_view bytes = range.get().text();
        std::vector<T> elements(bytes.size() / sizeof(T));
        if (!bytes.empty())
            std::memcpy(elements.data(), bytes.data(), bytes.size());
        return elements;
    }
    void set(std::size_t index, T element) const { set(index, std::vector<T>{element}); }
    /// Replaces elements that follow each other.
    void set(std::size_t first, const std::vector<T> &elements) const {
        client_->command({"VEC.SETRANGE", key_, std::to_string(first), "BLOB", elements}).get();
    }

private:
    const client *client_;
    std::string key_;
};

} // namespace holdfast

#endif
