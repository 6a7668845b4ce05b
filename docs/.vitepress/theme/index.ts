import DefaultTheme from 'vitepress/theme'
import { onMounted } from 'vue'
import Diagram from './Diagram.vue'
import './style.css'

// Tables and diagrams that scroll sideways say on which sides there is more.
const scrolls = '.vp-doc table, .diagram'
function mark(element: Element) {
  const { scrollLeft, clientWidth, scrollWidth } = element
  element.classList.toggle('more-left', scrollLeft > 1)
  element.classList.toggle('more-right', scrollLeft + clientWidth < scrollWidth - 1)
}

export default {
  extends: DefaultTheme,
  enhanceApp: ({ app }) => app.component('Diagram', Diagram),
  setup() {
    onMounted(() => {
      new ResizeObserver(() => document.querySelectorAll(scrolls).forEach(mark)).observe(document.body)
      const moved = ({ target }: Event) => target instanceof Element && target.matches(scrolls) && mark(target)
      document.addEventListener('scroll', moved, { capture: true, passive: true })
    })
  },
}
