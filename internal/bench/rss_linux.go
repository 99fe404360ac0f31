package bench

// maxRSSUnit is what getrusage counts ru_maxrss in: kilobytes on Linux.
const maxRSSUnit = 1 << 10
