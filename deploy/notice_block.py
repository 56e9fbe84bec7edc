"""Make the notification block 'notices' on the Prefect server: a webhook, whose URL comes on stdin.

Prints the block's id, which automations.yaml wants. See README.md, "Watching it".
"""

import sys

from prefect.blocks.notifications import CustomWebhookNotificationBlock

block = CustomWebhookNotificationBlock(
    name="notices",
    url="{{url}}",  # kept among the secrets: whoever has a webhook's URL can write there
    json_data={"text": "{{subject}}\n{{body}}"},
    secrets={"url": sys.stdin.readline().strip()},
)
sys.stdout.write(f"{block.save('notices', overwrite=True)}\n")
if "--try" in sys.argv:
    block.notify("A notice of statpress looks like this.", subject="statpress: a test")
