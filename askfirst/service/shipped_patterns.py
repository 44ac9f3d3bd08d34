"""The risk patterns that come with Askfirst, in the format of an operator's file."""

from __future__ import annotations

SHIPPED = r"""
# Lines to look at twice. `match` and `unless` are regular expressions in Rust's syntax, searched for in each line.
# A line counts unless its statement (up to the next semicolon) also has `unless`.

[[pattern]]
name = "deletes files without asking"
match = '\brm\s+(-[^\s]+\s+)*-[a-zA-Z]*([rR][a-zA-Z]*f|f[a-zA-Z]*[rR]|r\s+-f|R\s+-f|f\s+-[rR])'

[[pattern]]
name = "deletes files without asking"
match = '\brm\s.*--(recursive\s.*--force|force\s.*--recursive|no-preserve-root)'

[[pattern]]
name = "deletes what find finds"
match = '\bfind\s.*\s-delete\b'

[[pattern]]
name = "drops a table or database"
match = '(?i)\bdrop\s+(table|database|schema|index|view|user|role|tablespace|column|collection)\b'

[[pattern]]
name = "empties a table"
match = '(?i)\btruncate\s+(table\s+)?[a-z_"`\[]'

[[pattern]]
name = "deletes all rows"
match = '(?i)\bdelete\s+from\b'
unless = '(?i)\bwhere\b'

[[pattern]]
name = "changes all rows"
match = '(?i)\bupdate\s+[a-z0-9_."`\[\]]+\s+set\b'
unless = '(?i)\bwhere\b'

[[pattern]]
name = "forces it"
match = '(^|\s)--force(-[a-z-]+)?(\s|=|$)'

[[pattern]]
name = "rewrites shared history"
match = '\bgit\s+push(\s.*)?\s(-f\b|\+[a-zA-Z])'

[[pattern]]
name = "throws work away"
match = '\bgit\s+(reset\s+--hard|clean\s+-[a-zA-Z]*f|checkout\s+--\s)'

[[pattern]]
name = "changes the firewall"
match = '\b(iptables|ip6tables|nft|ufw|firewall-cmd)\b'

[[pattern]]
name = "opens files to everybody"
match = '\bchmod\s+(-[a-zA-Z]+\s+)*(0?777|a\+[rwx]*w|o\+[rwx]*w)'

[[pattern]]
name = "runs what it downloads"
match = '\b(curl|wget)\b.*\|\s*(sudo\s+)?(ba|z|da|k)?sh\b'

[[pattern]]
name = "runs what it downloads"
match = '\b(curl|wget)\b.*\|\s*(sudo\s+)?(python|perl|ruby|node)[0-9.]*\b'

[[pattern]]
name = "overwrites a disk"
match = '\b(mkfs(\.[a-z0-9]+)?|wipefs|shred)\b|\bdd\s.*\bof=/dev/'

[[pattern]]
name = "runs as root"
match = '(^|[;&|]\s*|\s)sudo\s'

[[pattern]]
name = "stops or restarts the machine"
match = '(^|[;&|]\s*|sudo\s+)(shutdown|reboot|halt|poweroff)\b'

[[pattern]]
name = "removes images or volumes"
match = '\bdocker\s+(system|image|volume|container|builder)\s+prune\b'

[[pattern]]
name = "deletes from the cluster"
match = '\bkubectl\s+.*\b(delete|drain)\b'

[[pattern]]
name = "destroys infrastructure"
match = '\b(terraform|tofu|pulumi)\s+.*\bdestroy\b'

[[pattern]]
name = "gives rights in the database"
match = '(?i)\bgrant\s+(all|select|insert|update|delete|execute|usage)\b.*\bto\b'

# Addresses on the internet: not those of private networks, of this machine or of examples, and no version numbers.
[[pattern]]
name = "names a public IP address"
match = '(^|[\s/@:("<,]|[^=]=)([1-9]|1[1-9]|[2-9][0-9]|10[1-9]|11[0-9]|12[0-689])(\.[0-9]{1,3}){3}(\.?$|\.?[^.0-9A-Za-z_])'

[[pattern]]
name = "names a public IP address"
match = '(^|[\s/@:("<,]|[^=]=)(1[345][0-9]|16[0-8]|17[0134-9]|18[0-9]|19[013-79]|20[0-24-9]|21[0-9]|22[0-3])(\.[0-9]{1,3}){3}(\.?$|\.?[^.0-9A-Za-z_])'

[[pattern]]
name = "names a public IP address"
match = '(^|[\s/@:("<,]|[^=]=)(100\.([0-9]|[1-5][0-9]|6[0-3]|12[89]|1[3-9][0-9]|2[0-9][0-9])|169\.([0-9]{1,2}|1[0-9]{2}|2[0-46-9][0-9]|25[0-35-9]))(\.[0-9]{1,3}){2}(\.?$|\.?[^.0-9A-Za-z_])'

[[pattern]]
name = "names a public IP address"
match = '(^|[\s/@:("<,]|[^=]=)(172\.([0-9]|1[0-5]|3[2-9]|[4-9][0-9]|[12][0-9]{2})|192\.([1-9][0-9]?|1[0-57-9][0-9]|16[0-79]|2[0-9]{2}))(\.[0-9]{1,3}){2}(\.?$|\.?[^.0-9A-Za-z_])'

[[pattern]]
name = "names a public IP address"
match = '(^|[\s/@:("<,]|[^=]=)(198\.([0-9]|1[0-7]|[2-4][0-9]|50|5[2-9]|[6-9][0-9]|[12][0-9]{2})|203\.([1-9][0-9]{0,2}))(\.[0-9]{1,3}){2}(\.?$|\.?[^.0-9A-Za-z_])'

[[pattern]]
name = "names a public IP address"
match = '(?i)(^|[^0-9a-z:.])[23][0-9a-f]{3}((:[0-9a-f]{1,4}){7}|(:[0-9a-f]{1,4}){0,6}::)'

[[pattern]]
name = "runs text as a program"
match = '\beval\s*[("$`]|\bbase64\s+(-d|--decode)\b.*\|\s*(ba|z)?sh\b'
"""  # noqa: E501  (a regular expression cannot be broken)
