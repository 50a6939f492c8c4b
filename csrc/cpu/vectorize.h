/* How plain loops become vector code. Include first in files of hot loops.
 *
 * The pragma raises the optimisation level of the file so that the compiler vectorises; errno is not set by sqrt and comparisons
 * may be turned into selects. Neither changes a value: contraction stays off and nothing is reassociated.
 *
 * U8 ... F64 are the stored element types: unaligned and free to alias, as data from outside may be both. */
#ifndef AMP_VECTORIZE_H
#define AMP_VECTORIZE_H
#include <stdint.h>

#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
/* Iterations may be reordered: output and input elements coincide exactly or not at all. */
#define IVDEP _Pragma("GCC ivdep")
#endif

#define STORED __attribute__((aligned(1), may_alias))
typedef uint8_t STORED U8;
typedef int8_t STORED I8;
typedef uint16_t STORED U16;
typedef int16_t STORED I16;
typedef int32_t STORED I32;
typedef int64_t STORED I64;
typedef float STORED F32;
typedef double STORED F64;

#endif
