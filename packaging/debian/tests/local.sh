# SPDX-License-Identifier: MIT
# Read by the others: agentbox-local.service, and agentboxd.service on it, by the example of a drop-in. LOCAL_PORT is another port than
# the unit's, for containers that share a network.
port=${LOCAL_PORT:-49990}
socket=/run/agentboxd/agentboxd.sock
units=/etc/systemd/system

mkdir -p "$units/agentboxd.service.d" "$units/agentbox-local.service.d"
cp /usr/share/doc/agentboxd/examples/systemd/local.conf "$units/agentboxd.service.d/"
sed -n "s/^#   //p" "$units/agentboxd.service.d/local.conf" | sed "s/:49990/:$port/" >/etc/agentboxd/conf.d/local.conf
systemctl cat agentbox-local.service | sed -n "s/^\(ExecStart=.*:\)49990 /[Service]\nExecStart=\n\1$port /p" \
	>"$units/agentbox-local.service.d/port.conf"
systemctl daemon-reload
systemctl start agentbox-local.service agentboxd.socket
systemctl restart agentboxd.service
