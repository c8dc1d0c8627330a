/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONFIG_PVT_H
#define ROUTER_CONFIG_PVT_H

#include "config/config.h"

/* Where complaints go. */
struct blame {
	const char *path;
	char *err;
	size_t errlen;
};

/* One line about a key of the file; always -EINVAL. */
#define complain(b, section, key, ...)                                                             \
	(kvr_conf_blame((b)->path, section, key, (b)->err, (b)->errlen, __VA_ARGS__), -EINVAL)

/* What the keys say together: contradictions, the lcore map, pairs of pools. -EINVAL with a line.
 */
int kvr_router_conf__check(struct kvr_router_conf *c, const struct blame *b);

#endif
