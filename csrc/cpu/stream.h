/* Stores around the caches, for results that would not stay in them. STREAM_N(to, from) moves N bytes between addresses that are multiples
 * of N; STREAMED makes sure that whoever is told that the work is done sees them. */
#ifndef AMP_STREAM_H
#define AMP_STREAM_H
#if defined(__x86_64__)
#include <immintrin.h>
#define STREAM_16(to, from) _mm_stream_si128((void *)(to), _mm_load_si128((const void *)(from)))
#define STREAM_32(to, from) _mm256_stream_si256((void *)(to), _mm256_load_si256((const void *)(from)))
#define STREAM_64(to, from) _mm512_stream_si512((void *)(to), _mm512_load_si512((const void *)(from)))
#define STREAMED            _mm_sfence()
#else
#include <string.h>
#define STREAM_16(to, from) memcpy(to, from, 16)
#define STREAMED            (void)0
#endif
#endif
