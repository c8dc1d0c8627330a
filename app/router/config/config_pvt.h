/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONFIG_PVT_H
#define ROUTER_CONFIG_PVT_H

#include "config/config.h"

/* Destination of error messages. */
struct blame {
	const char *path;
	char *err;
	size_t errlen;
};

/* Report an error of a key; the value is -EINVAL. */
#define complain(b, section, key, ...)                                                             \
	(kvr_conf_blame((b)->path, section, key, (b)->err, (b)->errlen, __VA_ARGS__), -EINVAL)

/* Check keys against each other, and resolve the lcore map and pairs of pools. @return 0, or
 * -EINVAL with an error message. */
int kvr_router_conf__check(struct kvr_router_conf *conf, const struct blame *b);

#endif
