// A first program: sets a grid while it goes on computing, and gets it back into place.
//
//     c++ -std=c++17 first.cpp -o first $(pkg-config --cflags --libs holdfast) && ./first 127.0.0.1:6379

#include <holdfast.hpp>
#include <iostream>
#include <numeric>

int main(int argc, char **argv) {
    try {
        holdfast::client client(argc > 1 ? argv[1] : "127.0.0.1:6379");
        std::vector<double> grid(1 << 17), copy(1 << 17);
        std::iota(grid.begin(), grid.end(), 0.0);

        // The grid may be read while the request is on its way, and not be changed.
        holdfast::request set = client.iset("grid", grid);
        double sum = std::accumulate(grid.begin(), grid.end(), 0.0);
        set.get();

        std::size_t length = client.iget("grid", copy).get().length();
        std::cout << length << " bytes, sum " << std::int64_t(sum) << ", last " << copy.back() << "\n";
    } catch (const holdfast::error &e) {
        std::cerr << e.what() << "\n";
        return 1;
    }
}
