/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses, paths and prefixes as text. Control thread. */
#include "kvr_port.h"

#include "net_pvt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int kvr_ip_parse(const char *text, uint8_t ip[16])
{
	uint8_t ip4[4];

	if (inet_pton(AF_INET, text, ip4) == 1) {
		net_map4(ip, ip4);
		return 4;
	}
	return inet_pton(AF_INET6, text, ip) == 1 ? 6 : -EINVAL;
}

static bool is_mapped(const uint8_t ip[16])
{
	return net_is_zero(ip, 10) && ip[10] == 0xff && ip[11] == 0xff;
}

const char *kvr_ip_text(const uint8_t ip[16], char *buf, size_t len)
{
	const bool v4 = is_mapped(ip);

	if (inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + 12 : ip, buf, (socklen_t)len) == NULL &&
	    len > 0)
		buf[0] = '\0';
	return buf;
}

const char *kvr_path_text(const struct kvr_path *path, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN], vlan[32] = "";

	if (path->family == 0) {
		snprintf(buf, len, "none");
		return buf;
	}
	if (path->vlan_outer != 0)
		snprintf(vlan, sizeof(vlan), "%%vlan%u.%u", path->vlan_outer & 0xfffu, path->vlan);
	else if (path->vlan != 0)
		snprintf(vlan, sizeof(vlan), "%%vlan%u", path->vlan);
	snprintf(buf, len, path->family == 4 ? "%s:%u%s" : "[%s]:%u%s",
		 kvr_ip_text(path->ip, ip, sizeof(ip)), path->udp_port, vlan);
	return buf;
}

int kvr_prefix_parse(const char *text, struct kvr_prefix *out)
{
	char address[INET6_ADDRSTRLEN];
	const char *slash = strchr(text, '/');
	const size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);
	uint8_t ip[16], mask[16] = {0}, beyond = 0;
	unsigned long bits;
	char *end;
	int family;

	if (n >= sizeof(address))
		return -EINVAL;
	memcpy(address, text, n);
	address[n] = '\0';
	family = kvr_ip_parse(address, ip);
	if (family < 0)
		return -EINVAL;
	bits = family == 4 ? 32 : 128;
	if (slash != NULL) {
		const unsigned long most = bits;

		if (slash[1] < '0' || slash[1] > '9')
			return -EINVAL;
		bits = strtoul(slash + 1, &end, 10);
		if (*end != '\0' || bits > most)
			return -EINVAL;
	}
	if (family == 4)
		bits += 96;
	for (unsigned long i = 0; i < bits; i++)
		mask[i / 8] |= (uint8_t)(0x80u >> (i % 8));
	for (int i = 0; i < 16; i++) {
		beyond |= ip[i] & (uint8_t)~mask[i];
		ip[i] &= mask[i];
	}
	memcpy(out->addr, ip, 16);
	memcpy(out->mask, mask, 16);
	return beyond == 0 ? 0 : -ERANGE;
}
