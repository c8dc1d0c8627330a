/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CONF_ROWS_H
#define KVR_CONF_ROWS_H

/**
 * @file
 * Macros for the rows of an option table (kvr_conf.h), for inclusion by .c files only. The file
 * names the struct that the rows fill:
 *
 *     #define KVR_CONF_ROWS_OF struct gw_options
 *     U32("threads", threads, 1, 64, "1", "threads", "event loops"),
 *
 * Arguments: name, field, limits or choices, default, unit, help.
 */

#include "kvr_conf.h"

#define FIELD(f) .offset = offsetof(KVR_CONF_ROWS_OF, f)
#define TEXT(n, f, d, h)                                                                           \
	{                                                                                          \
		.name = n, .type = KVR_OPT_STRING, FIELD(f),                                       \
		.size = sizeof(((KVR_CONF_ROWS_OF *)0)->f), .def = d, .help = h                    \
	}
#define NUM(n, t, f, lo, hi, d, u, h)                                                              \
	{                                                                                          \
		.name = n, .type = t, FIELD(f), .min = lo, .max = hi, .def = d, .unit = u,         \
		.help = h                                                                          \
	}
#define U32(n, f, lo, hi, d, u, h) NUM(n, KVR_OPT_U32, f, lo, hi, d, u, h)
#define U64(n, f, lo, hi, d, u, h) NUM(n, KVR_OPT_U64, f, lo, hi, d, u, h)
#define F64(n, f, lo, hi, d, u, h) NUM(n, KVR_OPT_F64, f, lo, hi, d, u, h)
#define FLAG(n, f, h)                                                                              \
	{                                                                                          \
		.name = n, .type = KVR_OPT_BOOL, FIELD(f), .def = "no", .help = h                  \
	}
#define PICK(n, f, c, d, h)                                                                        \
	{                                                                                          \
		.name = n, .type = KVR_OPT_ENUM, FIELD(f), .choices = c, .def = d, .help = h       \
	}

#endif
