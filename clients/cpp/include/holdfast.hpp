// Holdfast's client library for C++17: values of RAII over holdfast.h. What goes wrong is thrown as holdfast::error.
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <holdfast.h>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace holdfast {

/// What went wrong, and whether the server has executed the request.
class error : public std::runtime_error {
public:
    error(hf_status status, hf_executed executed, const std::string &what)
        : std::runtime_error(what), status_(status), executed_(executed) {}

    hf_status status() const noexcept { return status_; }
    hf_executed executed() const noexcept { return executed_; }

private:
    hf_status status_;
    hf_executed executed_;
};

namespace detail {

inline const char *name(hf_status status) {
    switch (status) {
    case HF_IN_PROGRESS: return "it is not done";
    case HF_E_FULL: return "too many requests or bytes are in flight";
    case HF_E_NO_REQUEST: return "there is no such request";
    case HF_E_NO_CLIENT: return "there is no such client";
    case HF_E_INVALID: return "an argument cannot be right";
    default: return "the request failed";
    }
}

/// `executed` says what is known of a request that was handed over; without it, there is none.
inline void check(hf_status status, hf_executed executed = HF_NOT_EXECUTED) {
    if (status != HF_OK)
        throw error(status, executed, name(status));
}

inline std::int64_t millis(std::optional<std::chrono::milliseconds> timeout) {
    if (!timeout)
        return -1;
    return timeout->count() < 0 ? 0 : timeout->count();
}

/// Contiguous containers of values that are no more than their bytes: std::vector, std::array, std::span and so on.
template <class C>
using element = std::remove_pointer_t<decltype(std::declval<C &>().data())>;

} // namespace detail

/// Bytes to be read, wherever they are.
struct bytes {
    const void *data;
    std::size_t size;

    bytes(const void *data, std::size_t size) noexcept : data(data), size(size) {}
    bytes(const char *text) noexcept : bytes(std::string_view(text)) {}

    template <class C, class T = detail::element<const C>>
    bytes(const C &values) noexcept : data(values.data()), size(values.size() * sizeof(T)) {
        static_assert(std::is_trivially_copyable_v<T>, "values that are no more than their bytes");
    }
};

/// Bytes to be written.
struct buffer {
    void *data;
    std::size_t size;

    buffer(void *data, std::size_t size) noexcept : data(data), size(size) {}

    template <class C, class T = detail::element<C>>
    buffer(C &&values) noexcept : data(values.data()), size(values.size() * sizeof(T)) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "values to be written to");
    }
};

/// A look at a reply, or at a part of one. It lasts as long as its request.
class reply {
public:
    explicit reply(const hf_reply &raw) noexcept : raw_(raw) {}

    hf_type type() const noexcept { return raw_.type; }
    bool is_nil() const noexcept { return raw_.type == HF_NIL; }
    /// The bytes of a string; none if they are in the buffer of iget.
    std::string_view text() const noexcept {
        return raw_.data ? std::string_view(raw_.data, raw_.len) : std::string_view();
    }
    std::int64_t integer() const noexcept { return raw_.integer; }
    double number() const noexcept { return raw_.number; }
    /// Bytes of a string, or in the buffer.
    std::size_t length() const noexcept { return raw_.len; }
    /// Elements; a pair of a map is two.
    std::size_t size() const noexcept { return raw_.count; }
    reply operator[](std::size_t at) const {
        if (at >= raw_.count)
            throw std::out_of_range("the reply has fewer elements");
        return reply(raw_.items[at]);
    }

private:
    hf_reply raw_;
};

/// A request, which can be waited for like a std::future. When it is destroyed it is released, and all its buffers are
/// free.
class request {
public:
    request() noexcept = default;
    request(hf_client client, hf_request id) noexcept : client_(client), id_(id) {}
    request(request &&other) noexcept : client_(other.client_), id_(std::exchange(other.id_, 0)) {}
    request &operator=(request &&other) noexcept {
        if (this != &other) {
            release();
            client_ = other.client_;
            id_ = std::exchange(other.id_, 0);
        }
        return *this;
    }
    ~request() { release(); }

    bool valid() const noexcept { return id_ != 0; }
    hf_request id() const noexcept { return id_; }

    /// Makes what progress there is, and tells how far the request is.
    hf_state test() const {
        hf_state state;
        hf_status status = hf_test(client_, id_, &state);
        if (status != HF_IN_PROGRESS)
            check(status);
        return state;
    }

    void wait() const { check(hf_wait(client_, id_, -1)); }

    template <class Rep, class Period>
    std::future_status wait_for(std::chrono::duration<Rep, Period> timeout) const {
        auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
        hf_status status = hf_wait(client_, id_, detail::millis(millis));
        if (status == HF_IN_PROGRESS)
            return std::future_status::timeout;
        check(status);
        return std::future_status::ready;
    }

    /// Waits until a buffer that was handed over for sending is the caller's again.
    void wait_buffer() const { check(hf_wait_buffer(client_, id_, -1)); }

    /// Waits for the reply.
    reply get() const {
        wait();
        hf_reply raw;
        // For a request that another thread has released meanwhile, of which nothing is written.
        raw.executed = HF_MAYBE_EXECUTED;
        hf_status status = hf_result(client_, id_, &raw);
        if (status == HF_OK)
            return reply(raw);
        char text[256] = "";
        hf_message(client_, id_, text, sizeof text);
        throw error(status, raw.executed, *text ? text : detail::name(status));
    }

    void cancel() const { check(hf_cancel(client_, id_)); }

    void release() noexcept {
        if (id_ != 0)
            hf_release(client_, std::exchange(id_, 0));
    }

private:
    /// It was handed over: if the client was closed, or the request released, nobody knows what became of it.
    static void check(hf_status status) { detail::check(status, HF_MAYBE_EXECUTED); }

    hf_client client_ = 0;
    hf_request id_ = 0;
};

/// What a client is told; as hf_options, whose size is set.
struct options : hf_options {
    explicit options(const char *addresses) noexcept : hf_options{} {
        hf_options::size = sizeof(hf_options);
        servers = addresses;
    }
};

/// A client. All threads may use it, but for its end.
class client {
public:
    explicit client(const char *servers) : client(options(servers)) {}
    explicit client(const options &options) {
        char text[256] = "";
        hf_status status = hf_open(&options, &client_, text, sizeof text);
        if (status != HF_OK)
            throw error(status, HF_NOT_EXECUTED, *text ? text : detail::name(status));
    }
    client(client &&other) noexcept : client_(std::exchange(other.client_, 0)) {}
    client &operator=(client &&other) noexcept {
        std::swap(client_, other.client_);
        return *this;
    }
    ~client() { hf_close(client_); }

    /// The value is the library's until request::wait_buffer.
    request iset(std::string_view key, bytes value) const {
        return take([&](hf_request *id) {
            return hf_iset(client_, key.data(), key.size(), value.data, value.size, id);
        });
    }
    /// The value is the caller's again on return.
    request bset(std::string_view key, bytes value) const {
        return take([&](hf_request *id) {
            return hf_bset(client_, key.data(), key.size(), value.data, value.size, id);
        });
    }
    /// The buffer is the library's until the request is done.
    request iget(std::string_view key, buffer into) const {
        return take([&](hf_request *id) {
            return hf_iget(client_, key.data(), key.size(), into.data, into.size, id);
        });
    }
    request bget(std::string_view key) const {
        return take([&](hf_request *id) { return hf_bget(client_, key.data(), key.size(), id); });
    }
    /// Any command; HF_ flags, and which argument is the first key, negative for none.
    request command(std::initializer_list<bytes> args, std::uint32_t flags = 0, int key_at = 1) const {
        return command(std::vector<bytes>(args), flags, key_at);
    }
    request command(const std::vector<bytes> &args, std::uint32_t flags = 0, int key_at = 1) const {
        std::vector<const void *> data;
        std::vector<std::size_t> sizes;
        for (const bytes &arg : args) {
            data.push_back(arg.data);
            sizes.push_back(arg.size);
        }
        return take([&](hf_request *id) {
            return hf_command(client_, data.size(), data.data(), sizes.data(), key_at, flags, nullptr, 0, id);
        });
    }

    void flush() const { detail::check(hf_flush(client_)); }
    void progress(std::chrono::milliseconds timeout) const {
        detail::check(hf_progress(client_, detail::millis(timeout)));
    }
    /// The number of a request with HF_LISTED that is done; 0 if there is none.
    hf_request next_completion() const {
        hf_request id = 0;
        hf_status status = hf_next_completion(client_, &id);
        if (status != HF_IN_PROGRESS)
            detail::check(status);
        return id;
    }
    int event_fd() const noexcept { return hf_event_fd(client_); }
    hf_client number() const noexcept { return client_; }

private:
    template <class Submit>
    request take(Submit submit) const {
        hf_request id = 0;
        detail::check(submit(&id));
        return request(client_, id);
    }

    hf_client client_ = 0;
};

} // namespace holdfast

#endif
